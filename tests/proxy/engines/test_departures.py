"""Departures: in order under the limit, places given back, back-pressure beside answers, errors if nothing answers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from weir.proxy.engines.connections import Connections
from weir.proxy.engines.departures import Departures
from weir.proxy.engines.fair_queue import Ticket
from weir.proxy.engines.gate import Gate, PauseMode
from weir.proxy.engines.in_flight_limit import START, InFlightLimit
from weir.proxy.errors import Unavailable, UpstreamNotReached

REFUSED = UpstreamNotReached("refused")


class Scene:
    """Departures over a gate, with connections that the test counts itself."""

    def __init__(self, most: int = 8192, refused_limit_s: float = 30.0) -> None:
        self.gate = Gate(60.0)
        self.connections = Connections()
        self.departures = Departures(
            self.gate, InFlightLimit(most), self.connections, refused_limit_s=refused_limit_s, pause_s=0.001
        )
        self.gone: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, number: int, key: str | None = None) -> asyncio.Task[None]:
        """A call that asks to go, and stays in flight."""
        ticket = Ticket(key, f"s{number}", number)

        async def go() -> None:
            await self.departures.depart(ticket)
            self.gone.append(number)

        task = asyncio.create_task(go())
        self.tasks.append(task)
        return task


def played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(play(), 20))


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_thousand_held_calls_go_in_order_under_the_limit() -> None:
    async def play() -> None:
        scene = Scene()
        await scene.gate.close(PauseMode.CONTINUE, 1.0)
        for number in range(1000):
            scene.ask(number)
        await settled()
        assert (scene.departures.held, scene.departures.waiting, scene.gone) == (1000, 1000, [])
        scene.gate.open()
        await settled()
        assert scene.gone == list(range(START))
        assert (scene.departures.held, scene.departures.waiting, scene.gate.in_flight) == (0, 1000 - START, START)
        while len(scene.gone) < 1000:
            scene.departures.ended(Ticket(None, "", 0), answered=True)
            await settled()
            assert scene.gate.in_flight <= scene.departures.limit.calls
        assert scene.gone == list(range(1000))

    played(play)


def test_calls_that_take_long_do_not_keep_the_limit_low() -> None:
    async def play() -> None:
        scene = Scene()
        for number in range(START + 100):
            scene.ask(number)
        await asyncio.gather(*scene.tasks)  # without an answer
        assert scene.gate.in_flight == START + 100

    played(play)


def test_the_limit_does_not_grow_while_connections_are_not_accepted() -> None:
    async def play() -> None:
        scene = Scene()
        scene.connections.opening = START
        for number in range(START + 1):
            scene.ask(number)
        await asyncio.sleep(0.8)  # three rounds
        assert scene.departures.limit.calls == START
        scene.connections.opening = 0
        await asyncio.gather(*scene.tasks)

    played(play)


def test_a_place_that_is_free_as_the_next_client_leaves_goes_to_the_one_behind() -> None:
    async def play() -> None:
        scene = Scene(most=1)
        calls = [scene.ask(number) for number in range(3)]
        await settled()
        calls[1].cancel()  # and before it learns of that, the call in flight ends
        scene.departures.ended(Ticket(None, "", 0), answered=True)
        await settled()
        assert (scene.gone, scene.gate.in_flight, scene.departures.waiting) == ([0, 2], 1, 0)

    played(play)


def test_a_client_that_leaves_while_it_waits_or_as_its_turn_comes_frees_its_place_at_once() -> None:
    async def play() -> None:
        scene = Scene(most=1)
        calls = [scene.ask(number) for number in range(4)]
        await settled()
        calls[1].cancel()
        await settled()
        assert scene.departures.waiting == 2
        scene.departures.ended(Ticket(None, "", 0), answered=True)  # the turn of 2 is there, and it has not run since
        calls[2].cancel()
        await settled()
        assert scene.gone == [0, 3]
        assert (scene.gate.in_flight, scene.departures.waiting) == (1, 0)

    played(play)


def test_a_refused_call_keeps_its_place_before_later_ones() -> None:
    async def play() -> None:
        scene = Scene(most=2)
        scene.connections.in_use = 1
        first, order = Ticket(None, "first", 0), []
        await scene.departures.depart(first)
        for number in range(1, 4):
            scene.ask(number)
        await settled()  # 1 is in flight with it
        scene.departures.refused(first, REFUSED)

        async def again() -> None:
            await scene.departures.depart(first)
            order.append(list(scene.gone))

        waiting = asyncio.create_task(again())
        await settled()
        while not waiting.done():
            scene.departures.ended(Ticket(None, "", 0), answered=True)
            await settled()
        assert order == [[1]]

    played(play)


def test_refusals_beside_calls_that_are_answered_end_nothing() -> None:
    async def play() -> None:
        scene = Scene(refused_limit_s=0.0)
        scene.connections.in_use = 1
        ticket = Ticket(None, "s", 0)
        for _ in range(50):
            await scene.departures.depart(ticket)
            scene.departures.refused(ticket, REFUSED)
            assert not scene.departures.is_overdue(ticket)
        assert scene.departures.num_refused == 50

    played(play)


def test_where_nothing_answers_few_calls_try_and_all_end_at_their_limit() -> None:
    async def play() -> None:
        scene = Scene(refused_limit_s=0.3)
        tries = 0

        async def call(number: int) -> None:
            nonlocal tries
            ticket = Ticket(None, f"s{number}", number)
            while True:
                await scene.departures.depart(ticket)
                tries += 1
                scene.departures.refused(ticket, REFUSED)
                if scene.departures.is_overdue(ticket):
                    raise Unavailable("overdue")

        ended = await asyncio.gather(*(call(number) for number in range(2000)), return_exceptions=True)
        assert all(isinstance(error, Unavailable) for error in ended)
        assert tries < 1000
        assert (scene.gate.in_flight, scene.departures.waiting) == (0, 0)

    played(play)


def test_trouble_while_the_gate_is_closed_teaches_nothing() -> None:
    async def play() -> None:
        scene = Scene()
        tickets = [Ticket(None, f"s{number}", number) for number in range(100)]
        for ticket in tickets:
            await scene.departures.depart(ticket)
        await scene.gate.close(PauseMode.CONTINUE, 1.0)
        for ticket in tickets:
            scene.departures.refused(ticket, REFUSED)
        assert scene.departures.limit.calls == START
        scene.gate.open()
        await scene.departures.depart(tickets[0])

    played(play)


@pytest.mark.parametrize("calls", [1, 300])
def test_a_dead_upstream_that_comes_back_is_found_by_the_next_try(calls: int) -> None:
    async def play() -> None:
        scene = Scene()
        is_there = False

        async def call(number: int) -> None:
            ticket = Ticket(None, f"s{number}", number)
            while True:
                await scene.departures.depart(ticket)
                await asyncio.sleep(0)
                if is_there:
                    scene.departures.ended(ticket, answered=True)
                    return
                scene.departures.refused(ticket, REFUSED)

        tasks = [asyncio.create_task(call(number)) for number in range(calls)]
        await asyncio.sleep(0.1)
        is_there = True
        refused = scene.departures.num_refused
        await asyncio.gather(*tasks)
        assert scene.departures.num_refused == refused > 0
        assert (scene.gate.in_flight, scene.departures.waiting) == (0, 0)

    played(play)


def test_tagged_calls_go_first_and_do_not_wait_for_the_limit_that_is_learned() -> None:
    async def play() -> None:
        scene = Scene(most=START + 1)
        for number in range(START + 5):
            scene.ask(number)
        await settled()
        served = [Ticket(None, "product", number, serves=True) for number in range(2)]
        first = asyncio.create_task(scene.departures.depart(served[0]))
        second = asyncio.create_task(scene.departures.depart(served[1]))
        await settled()
        assert len(scene.gone) == START and first.done() and not second.done(), "no more than the setting allows"
        scene.departures.ended(served[0], answered=True)
        await settled()
        assert second.done() and len(scene.gone) == START, "before those that came earlier"

    played(play)
