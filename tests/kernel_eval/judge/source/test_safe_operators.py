"""Operators on constants: those that check what they read may run beside inputs, no others."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.ipc.trace import Launch, Operator, Place, Storage, Trace
from weir.kernel_eval.judge.source import provenance
from weir.kernel_eval.judge.source.safe_operators import ON_CONSTANTS

NONE: frozenset[str] = frozenset()
CONSTANT, MADE, OUT = (Place(at, "float32", (4,), (1,), 0) for at in range(3))


def call(name: str, *given: Place) -> Trace:
    """A call that runs an operator on these tensors, and a kernel that reads the result."""
    storages = (Storage("state", 0, 16), Storage("fresh", 0, 16), Storage("fresh", 0, 16), Storage("input", 0, 16))
    kernel = Launch("kernel", 1, (1,), {"x": MADE, "out": OUT})
    return Trace(storages, (Operator(name, given, {}, (MADE,)), kernel), (OUT,))


@pytest.mark.parametrize("name", ["aten.cos.default", "aten.mul.Tensor", "aten.add_.Scalar", "aten.cumsum.default"])
def test_an_operator_that_checks_what_it_reads_may_run_on_constants(name: str) -> None:
    trace = call(name, CONSTANT)
    assert provenance.broken_by(trace, NONE) is None
    assert provenance.needed(trace, NONE) == trace


@pytest.mark.parametrize(
    "name",
    ["aten.segment_reduce.default", "aten._embedding_bag.default", "aten.max_pool2d_with_indices_backward.default"],
)
def test_an_operator_that_trusts_its_arguments_is_neither_accepted_nor_played(name: str) -> None:
    trace = call(name, CONSTANT)
    broken = provenance.broken_by(trace, NONE)
    assert broken is not None
    assert (broken[0], name in broken[1], "compute it in __init__" in broken[1]) == ("torch_operator", True, True)
    assert provenance.needed(trace, NONE).steps == trace.steps[1:]
    assert provenance.broken_by(trace, NONE, permitted=None) == broken  # torch may compute: not read elsewhere


def test_a_task_that_lets_torch_compute_lets_it_compute_with_constants() -> None:
    assert provenance.broken_by(call("aten.segment_reduce.default", CONSTANT), frozenset({"torch_operator"})) is None


def test_each_name_is_one_of_torch_s_operators_but_for_forms_that_write_in_place() -> None:
    known = {name for name in ON_CONSTANTS if hasattr(torch.ops.aten, name)}
    assert {name.removesuffix("_") for name in ON_CONSTANTS - known} <= known
