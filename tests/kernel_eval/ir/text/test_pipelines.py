"""Which loads a loop takes before its stores, and what becomes of a loop that loads what it stored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from support_ttir import ttir_of

from weir.kernel_eval.ir.grid.memory import Storage
from weir.kernel_eval.ir.grid.run import PointerArgument, run
from weir.kernel_eval.ir.text.parser import parse
from weir.kernel_eval.ir.text.pipelines import mark_pipelined

SIZE, STEPS = 16, 4


@triton.jit
def multiplied(x, out, SIZE: tl.constexpr, STEPS: tl.constexpr, BARRIER: tl.constexpr):
    i = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    w = tl.load(x + i)
    tl.store(out + i, w)
    for step in range(1, STEPS):
        if BARRIER:
            tl.debug_barrier()
        before = tl.load(out + (step - 1) * SIZE * SIZE + i)
        tl.store(out + step * SIZE * SIZE + i, tl.dot(before, w, input_precision="ieee"))


@triton.jit
def added(x, out, SIZE: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr):
    i = tl.arange(0, SIZE * SIZE)
    tl.store(out + i, tl.load(x + i))
    for step in tl.range(1, STEPS, num_stages=STAGES):
        tl.store(out + step * SIZE * SIZE + i, tl.load(out + (step - 1) * SIZE * SIZE + i) + 1)


@triton.jit
def summed(x, out, SIZE: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    for _ in range(1, STEPS):
        product = tl.dot(tl.load(x + i), tl.load(x + i), input_precision="ieee")
        tl.store(out + i, tl.load(out + i) + product)


def races(kernel: Any, num_stages: int = 3, **constants: Any) -> frozenset[str]:
    constants = {"SIZE": SIZE, "STEPS": STEPS} | constants
    signature = {"x": "*fp32", "out": "*fp32"} | dict.fromkeys(constants, "constexpr")
    module = parse(ttir_of(kernel, signature, constants))
    mark_pipelined(module, num_stages)
    memory = [torch.rand(SIZE * SIZE), torch.zeros(SIZE * SIZE * STEPS)]
    storages = [Storage(memory=values.view(torch.uint8)) for values in memory]
    arguments = [PointerArgument(storage=at, offset=0) for at in range(2)]
    return run(module, (1, 1, 1), arguments, storages).races


@pytest.mark.parametrize(("barrier", "stages", "raced"), [(False, 3, True), (True, 3, False), (False, 1, False)])
def test_a_dot_of_what_the_loop_stored_needs_a_barrier(barrier: bool, stages: int, raced: bool) -> None:
    assert any("before that store" in race for race in races(multiplied, stages, BARRIER=barrier)) == raced


@pytest.mark.parametrize(("stages", "raced"), [(None, False), (1, False), (2, True)])
def test_a_loop_that_names_its_stages_takes_all_loads_before(stages: int | None, raced: bool) -> None:
    assert any("before that store" in race for race in races(added, STAGES=stages)) == raced


def test_what_is_added_to_a_dot_is_loaded_where_it_stands() -> None:
    assert not races(summed)
