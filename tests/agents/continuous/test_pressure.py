"""Pressure: which groups may start, and what is said when none may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from weir.agents.continuous import pressure as module
from weir.agents.continuous.pressure import Demand, Pressure


def said_during(readings: list[Callable[[Pressure], int]], groups_per_round: int, max_staleness: int) -> list[int]:
    """What is said over these readings: each gives the number of ready groups, and may change the pressure."""
    said: list[int] = []

    async def feed() -> None:
        over = asyncio.Event()
        left = iter(readings)

        def read() -> Demand:
            reading = next(left, None)
            if reading is None:
                loop.call_soon_threadsafe(over.set)
                return Demand(ready=0, training=False)
            return Demand(ready=reading(pressure), training=False)

        loop = asyncio.get_running_loop()
        pressure = Pressure(groups_per_round, max_staleness, read)
        feeding = asyncio.create_task(pressure.feed(lambda groups, _: said.append(groups)))
        await over.wait()
        feeding.cancel()

    asyncio.run(feed())
    return said


def ending(num_groups: int, *, ready: int) -> Callable[[Pressure], int]:
    """A reading within which groups end."""

    def reading(pressure: Pressure) -> int:
        for _ in range(num_groups):
            pressure.end()
        return ready

    return reading


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.0)


def test_a_group_that_ends_within_a_reading_is_not_said_twice() -> None:
    nothing, four_end, two_end = ending(0, ready=0), ending(4, ready=4), ending(2, ready=6)
    assert said_during([nothing, four_end, two_end, *[ending(0, ready=6)] * 3], 3, 1) == [6]


def test_it_is_said_once_each_time_that_the_need_is_met() -> None:
    two, trained = ending(0, ready=2), ending(0, ready=1)  # the group that starts then has ended at the next reading
    assert said_during([two, two, two, trained, ending(1, ready=2), two, two], 2, 0) == [2, 2]
