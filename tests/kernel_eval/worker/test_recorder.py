"""What Python puts in small tensors is in a record, as operators that a player runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from weir.kernel_eval.ipc.trace import Operator, Storage
from weir.kernel_eval.replay.steps import run_operator
from weir.kernel_eval.replay.values import tensor_at
from weir.kernel_eval.worker.recorder import Recorder, filled_with

NUMBERS = {
    torch.float32: [0.1, 0.1, -2.0, math.inf, 0.0, -0.0, -0.0],
    torch.float16: [0.5, 1.0],
    torch.int64: [2**62, -3, -3],
    torch.bool: [True, False, False],
}


@pytest.mark.parametrize("dtype", NUMBERS)
def test_the_operators_make_the_same_numbers(dtype: torch.dtype) -> None:
    wanted = torch.tensor(NUMBERS[dtype], dtype=dtype)
    memory = [torch.empty(0, dtype=torch.uint8), torch.zeros(wanted.nbytes, dtype=torch.uint8)]
    for step in filled_with(wanted.tolist(), dtype, 1):
        for place, made in run_operator(step, memory):
            tensor_at(place, memory).copy_(made)
    assert torch.equal(memory[1], wanted.view(torch.uint8))


def test_numbers_that_no_record_holds_are_left_out() -> None:
    assert filled_with([], torch.float32, 0) == []
    assert filled_with([-(2**63)], torch.int64, 0) == []


def _of(call: Callable[[torch.Tensor], torch.Tensor]) -> tuple[list[Storage], list[str]]:
    given, recorder = torch.zeros(4), Recorder()
    recorder.take_state()
    with recorder:
        recorder.start([given])
        made = call(given)
        trace = recorder.finish([made])
    return list(trace.storages), [step.name for step in trace.steps if isinstance(step, Operator)]


def test_a_list_is_recorded_where_it_is_read_first() -> None:
    storages, names = _of(lambda x: x + torch.tensor([1.0, 2.0, 2.0, 4.0]))
    assert "unknown" not in [storage.kind for storage in storages]
    assert names == ["aten.full.default", "aten.fill_.Scalar", "aten.fill_.Scalar", "aten.add.Tensor"]


def test_a_number_that_no_record_holds_leaves_memory_unknown() -> None:
    storages, _ = _of(lambda x: x + torch.tensor([-(2**63), 1, 2, 3]))
    assert "unknown" in [storage.kind for storage in storages]


def test_large_memory_that_nothing_reports_is_unknown() -> None:
    storages, names = _of(lambda x: x + torch.tensor([1.0] * 600)[:4])
    assert "unknown" in [storage.kind for storage in storages]
    assert names == ["aten.add.Tensor"]
