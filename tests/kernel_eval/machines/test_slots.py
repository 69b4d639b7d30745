"""Slots: evaluations before checks of tasks, each kind in order of arrival; cancelled waiters lose no slot."""

from __future__ import annotations

import asyncio

from weir.kernel_eval.machines.slots import Priority, Slots


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_evaluations_go_before_checks_and_each_kind_in_order() -> None:
    order: list[str] = []

    async def work(slots: Slots, name: str, priority: Priority) -> None:
        await slots.acquire(priority)
        order.append(name)
        slots.release()

    async def run() -> None:
        slots = Slots(1)
        await slots.acquire(Priority.EVALUATION)
        wanted = [("c1", Priority.TASK_CHECK), ("e1", Priority.EVALUATION), ("c2", Priority.TASK_CHECK)]
        waiting = [asyncio.create_task(work(slots, *one)) for one in [*wanted, ("e2", Priority.EVALUATION)]]
        await _settle()
        slots.release()
        await asyncio.gather(*waiting)

    asyncio.run(run())
    assert order == ["e1", "e2", "c1", "c2"]


def test_a_cancelled_waiter_loses_no_slot_whenever_it_is_cancelled() -> None:
    async def run() -> None:
        slots = Slots(1)
        await slots.acquire(Priority.EVALUATION)
        before = asyncio.create_task(slots.acquire(Priority.EVALUATION))
        together = asyncio.create_task(slots.acquire(Priority.EVALUATION))
        await _settle()
        before.cancel()
        await _settle()
        slots.release()  # the slot is given to `together`, which is cancelled before it runs
        together.cancel()
        await asyncio.gather(before, together, return_exceptions=True)
        async with asyncio.timeout(5):
            await slots.acquire(Priority.TASK_CHECK)

    asyncio.run(run())


def test_as_many_run_at_a_time_as_there_are_slots() -> None:
    async def run() -> int:
        slots, running, most = Slots(3), 0, 0

        async def work(priority: Priority) -> None:
            nonlocal running, most
            await slots.acquire(priority)
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            slots.release()

        await asyncio.gather(*(work(Priority(number % 2)) for number in range(40)))
        return most

    assert asyncio.run(run()) == 3
