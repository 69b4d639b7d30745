"""What depends on an order that a device does not define: of programs, and of the lanes of a program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from support_ttir import launch

from weir.kernel_eval.ir.limits import RunLimits

PROGRAMS = "a program"
LANES = "a lane"


@triton.jit
def sum_and_look(x, total, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at), 0))
    tl.store(out + tl.program_id(0), tl.load(total))


@triton.jit
def look_and_sum(x, total, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.load(total))
    tl.atomic_add(total, tl.sum(tl.load(x + at), 0))


@triton.jit
def clear_and_sum(x, total, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(total, 0.0)
    tl.atomic_add(total, tl.sum(tl.load(x + at), 0))


@triton.jit
def only_sum(x, total, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at), 0))


@pytest.mark.parametrize("kernel", [sum_and_look, look_and_sum, clear_and_sum, only_sum])
def test_plain_accesses_of_what_other_programs_change_by_atomics_are_races(kernel: Any) -> None:
    for programs in (1, 4):
        x, total, out = torch.ones(64), torch.zeros(1), torch.zeros(4)
        report = launch(kernel, (programs,), [x, total, out], {"BLOCK": 16})
        assert float(total) == 16 * programs
        raced = kernel is not only_sum and programs > 1
        assert [race[: len(PROGRAMS)] for race in report.races] == [PROGRAMS] * raced


@triton.jit
def one_reduces(
    x, partial, counter, out, BLOCK: tl.constexpr, BARRIER: tl.constexpr, SEM: tl.constexpr, AT: tl.constexpr
):
    at = tl.arange(0, BLOCK)
    tl.store(partial + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * BLOCK + at), 0))
    if BARRIER:
        tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem=SEM) == AT:
        tl.store(out, tl.sum(tl.load(partial + tl.arange(0, 4)), 0))


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(
    ("barrier", "sem", "at", "raced"),
    [
        (True, "acq_rel", 3, False),
        (True, "relaxed", 3, True),
        (True, "release", 3, True),
        (False, "acq_rel", 3, True),
        (True, "acq_rel", 2, True),
    ],
)
def test_only_the_last_program_may_reduce_what_the_others_left(
    barrier: bool, sem: str, at: int, raced: bool, order: int
) -> None:
    x = torch.randint(0, 9, (64,)).float()
    partial, total = torch.zeros(4), torch.zeros(1)
    constants = {"BLOCK": 16, "BARRIER": barrier, "SEM": sem, "AT": at}
    arguments = [x, partial, torch.zeros(1, dtype=torch.int32), total]
    report = launch(one_reduces, (4,), arguments, constants, RunLimits(order=order))
    assert bool(report.races) == raced
    assert raced or float(total) == float(x.sum())


@triton.jit
def under_a_lock(x, lock, total, COLUMNS: tl.constexpr, BARRIER: tl.constexpr, UNLOCK: tl.constexpr):
    at = tl.arange(0, COLUMNS)
    row = tl.load(x + tl.program_id(0) * COLUMNS + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    count = tl.load(lock + 1)
    if count == 0:
        tl.atomic_xchg(lock + 1, 1)
    else:
        row += tl.load(total + at)
    tl.store(total + at, row)
    if BARRIER:
        tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem=UNLOCK)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(
    ("barrier", "unlock", "raced"),
    [(True, "acq_rel", False), (True, "release", False), (True, "relaxed", True), (False, "acq_rel", True)],
)
def test_programs_may_change_the_same_elements_under_a_lock(
    barrier: bool, unlock: str, raced: bool, order: int
) -> None:
    x, total = torch.randint(0, 9, (8, 16)).float(), torch.zeros(16)
    arguments = [x, torch.zeros(2, dtype=torch.int32), total]
    constants = {"COLUMNS": 16, "BARRIER": barrier, "UNLOCK": unlock}
    report = launch(under_a_lock, (8,), arguments, constants, RunLimits(order=order))
    assert bool(report.races) == raced
    assert torch.equal(total, x.sum(0))


@triton.jit
def ticket(counter, out, LANES: tl.constexpr):
    at = tl.arange(0, LANES)
    tl.store(out + at, tl.atomic_add(counter + tl.zeros((LANES,), tl.int32), 1))


@triton.jit
def two_tickets(counter, out, LANES: tl.constexpr):
    tl.atomic_add(counter + tl.arange(0, LANES), 1)
    tl.store(out, tl.atomic_add(counter + 1, 1))


def test_old_values_depend_on_the_order_of_lanes_that_meet() -> None:
    def numbers() -> list[torch.Tensor]:
        return [torch.zeros(16, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)]

    assert "returned value" in launch(ticket, (1,), numbers(), {"LANES": 16}).ordered_atomics
    alone = launch(ticket, (1,), numbers(), {"LANES": 1})
    assert (alone.ordered_atomics, alone.races) == (frozenset(), frozenset())
    assert launch(two_tickets, (1,), numbers(), {"LANES": 16}).races
    assert not launch(two_tickets, (1,), numbers(), {"LANES": 1}).ordered_atomics


@triton.jit
def through_scratch(x, scratch, out, BLOCK: tl.constexpr, SHIFT: tl.constexpr, BARRIER: tl.constexpr):
    at = tl.arange(0, BLOCK)
    here = tl.program_id(0) * BLOCK
    tl.store(scratch + here + at, tl.load(x + here + at))
    if BARRIER:
        tl.debug_barrier()
    tl.store(out + here + at, tl.load(scratch + here + (at + SHIFT) % BLOCK))


@pytest.mark.parametrize(("shift", "barrier", "raced"), [(0, False, False), (3, False, True), (3, True, False)])
def test_a_lane_reads_what_another_one_wrote_only_past_a_barrier(shift: int, barrier: bool, raced: bool) -> None:
    x, scratch, out = torch.randn(64), torch.zeros(64), torch.zeros(64)
    constants = {"BLOCK": 16, "SHIFT": shift, "BARRIER": barrier}
    report = launch(through_scratch, (4,), [x, scratch, out], constants)
    assert torch.equal(out, x.view(4, 16).roll(-shift, 1).flatten())
    assert [race[: len(LANES)] for race in report.races] == [LANES] * raced


@triton.jit
def in_place(x, BLOCK: tl.constexpr, REVERSED: tl.constexpr, BARRIER: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = tl.program_id(0) * BLOCK + (BLOCK - 1 - tl.arange(0, BLOCK)) if REVERSED else at
    values = tl.load(x + here, mask=here >= 0)
    if BARRIER and tl.program_id(0) >= 0:
        tl.debug_barrier()
    tl.store(x + at, values * 2)


@pytest.mark.parametrize(("reversed_", "barrier", "raced"), [(False, False, 0), (True, False, 1), (True, True, 0)])
def test_a_lane_overwrites_what_another_one_reads_only_past_a_barrier(
    reversed_: bool, barrier: bool, raced: int
) -> None:
    x = torch.arange(64.0)
    report = launch(in_place, (4,), [x], {"BLOCK": 16, "REVERSED": reversed_, "BARRIER": barrier})
    expected = torch.arange(64.0).view(4, 16) * 2
    assert torch.equal(x, (expected.flip(1) if reversed_ else expected).flatten())
    assert [race[: len(LANES)] for race in report.races] == [LANES] * raced


@triton.jit
def barrier_of_some(scratch, out, BLOCK: tl.constexpr, FIRST: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(scratch + at, at)
    if tl.program_id(0) >= FIRST:
        tl.debug_barrier()
        tl.store(out + at, tl.load(scratch + tl.program_id(0) * BLOCK + BLOCK - 1 - tl.arange(0, BLOCK)))
    if tl.program_id(0) < FIRST:
        tl.store(out + at, tl.load(scratch + at))


@triton.jit
def barrier_of_others(scratch, out, BLOCK: tl.constexpr, FIRST: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(scratch + at, at)
    if tl.program_id(0) >= FIRST:
        tl.debug_barrier()
    tl.store(out + at, tl.load(scratch + tl.program_id(0) * BLOCK + BLOCK - 1 - tl.arange(0, BLOCK)))


@pytest.mark.parametrize(("kernel", "raced"), [(barrier_of_some, 0), (barrier_of_others, 1)])
def test_a_barrier_is_one_of_the_programs_that_come_to_it(kernel: Any, raced: int) -> None:
    arguments = [torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)]
    report = launch(kernel, (4,), arguments, {"BLOCK": 16, "FIRST": 2})
    assert [race[: len(LANES)] for race in report.races] == [LANES] * raced


@triton.jit
def twice(out, BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, at)
    tl.store(out + (at + SHIFT) % BLOCK, at + 1)


@pytest.mark.parametrize(("shift", "raced"), [(0, 0), (2, 1)])
def test_what_a_program_stores_twice_to_one_place_is_of_one_lane(shift: int, raced: int) -> None:
    report = launch(twice, (1,), [torch.zeros(16, dtype=torch.int32)], {"BLOCK": 16, "SHIFT": shift})
    assert [race[: len(LANES)] for race in report.races] == [LANES] * raced
