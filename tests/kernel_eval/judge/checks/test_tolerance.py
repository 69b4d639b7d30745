"""Comparing an answer with the reference's: which errors are excused, and when a draw tells nothing."""

from __future__ import annotations

import math

import pytest
import torch

from weir.kernel_eval.judge.checks.expected_answers import left_out, told_by
from weir.kernel_eval.judge.checks.tolerance import can_tell, compare
from weir.kernel_eval.tasks import rows
from weir.kernel_eval.tasks.reference import Reference

STEPS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        y = x
        for _ in range(STEPS):
            y = 3.9 * y * (1 - y)
        return y, x * 2
def get_inputs(): return [torch.rand(64, 64)]
def get_init_inputs(): return []
"""


def told(steps: int) -> set[int]:
    reference = Reference(STEPS.replace("STEPS", str(steps)), 5.0)
    model = reference.build([], 1)
    inputs = reference.inputs(3)
    return told_by(reference, model, inputs, reference.expected(model, inputs))


def test_a_chaotic_output_tells_nothing_and_the_one_beside_it_does() -> None:
    assert told(100) == {1}
    assert told(8) == {0, 1}


def test_some_rows_of_a_large_task_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MANY", 1 << 11)
    monkeypatch.setattr(rows, "_FEW", 1 << 9)
    assert told(100) == {1}
    assert told(8) == {0, 1}


def test_half_of_the_values_must_be_told_from_zeros() -> None:
    expected = torch.ones(100, 64, dtype=torch.float64)
    own = torch.zeros_like(expected)
    own[:49] = 0.2
    assert can_tell(expected, own)  # four times that is allowed: 0.8 of what the values are
    own[:51] = 0.2
    assert not can_tell(expected, own)
    assert can_tell(expected, own * 0.1)
    assert can_tell(torch.ones(3, dtype=torch.int64), torch.zeros(3))
    assert can_tell(torch.ones(0), torch.zeros(0))


@pytest.mark.parametrize("count", [4, 8, 10])
def test_an_element_that_rounding_moves_excuses_no_other_of_few(count: int) -> None:
    expected = torch.ones(count, dtype=torch.float64)
    own_errors = torch.full((count,), 1e-9)
    own_errors[1] = 0.1
    answer = expected.float()
    answer[1] += 0.3
    assert compare(answer, expected, own_errors) is None
    answer[2] += 0.01
    assert compare(answer, expected, own_errors) is not None


def test_a_slice_of_zeros_has_the_scale_of_the_whole_and_other_slices_their_own() -> None:
    expected = torch.ones(64, 128)
    expected[3] = 0.0
    near, far = expected.clone(), expected.clone()
    near[3], far[3] = 5e-8, 5e-6
    assert compare(near, expected) is None
    assert compare(far, expected) is not None


TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return RESULT
def get_inputs(): return [torch.randn(16, 256)]
def get_init_inputs(): return []
"""


def lacks_a_term(result: str, answer: str, scale: float = 1.0, dtype: str = "float32") -> bool:
    """Whether something shows that an answer to the task's own draw lacks a term; it is within the usual tolerance."""
    task = TASK.replace("RESULT", result).replace("randn(16, 256)", f"randn(16, 256).to(torch.{dtype}) * {scale}")
    reference = Reference(task, 5.0)
    model = reference.build([], 1)
    inputs = reference.inputs(3)
    expected = reference.expected(model, inputs)
    outputs = [eval(answer, {"torch": torch, "x": inputs[0]})]
    assert compare(outputs[0], expected.outputs[0]) is None
    return left_out(reference, model, inputs, expected, outputs) is not None


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ("x - 1e-5 * x", "x"),
        ("x + 1e-5 * torch.sin(x)", "x"),
        ("torch.softmax(x, 1) * 0.99995", "torch.softmax(x, 1)"),
        ("(x @ x.mT) * 0.99995", "x @ x.mT"),
        ("torch.erf(x)", "torch.erf(x) + 3e-5 * torch.sign(x)"),
    ],
)
def test_a_term_below_the_tolerance_is_missed_in_an_answer_to_the_tasks_own_draw(result: str, answer: str) -> None:
    assert lacks_a_term(result, answer)


@pytest.mark.parametrize(
    ("result", "answer", "scale"),
    [
        ("torch.tanh(x)", "(torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1)", 0.01),
        ("torch.var(x, 1)", "((x * x).sum(1) - x.sum(1) ** 2 / 256) / 255", 1.0),
        ("x.cumsum(1)", "torch.stack([x[:, : i + 1].flip(1).sum(1) for i in range(256)], 1)", 1.0),
        ("torch.log_softmax(x, 1)", "x - torch.log(torch.exp(x).sum(1, keepdim=True))", 1.0),
        ("torch.sin(50 * x)", "torch.sin(x * 5 * 10)", 1.0),
        ("x.half() * x.half().sin() - x.half()", "(x.half().float() * x.half().float().sin() - x.half()).half()", 1.0),
    ],
)
def test_another_way_to_compute_it_lacks_nothing(result: str, answer: str, scale: float) -> None:
    assert not lacks_a_term(result, answer, scale)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_in_half_precision_an_answer_to_a_task_by_value_has_the_errors_of_its_roundings(dtype: str) -> None:
    eps = torch.finfo(getattr(torch, dtype)).eps
    for result in ("x * torch.sigmoid(x)", "x * 0.9 + torch.sin(x) * 0.1 - 1"):
        once = result.replace("x", "x.float()")
        assert not lacks_a_term(result, f"({once}).to(x.dtype)", 1.0, dtype)
        if dtype == "float16":  # the usual tolerance is little more than a rounding of bfloat16
            assert lacks_a_term(result, f"({once} + {4 * eps} * (x > 0.5) * (x < 1.5)).to(x.dtype)", 1.0, dtype)
    sums = "x @ x.mT"  # not value by value
    assert not lacks_a_term(sums, f"(x.float() @ x.float().mT * (1 + {eps / 4})).to(x.dtype)", 1.0, dtype)


def test_what_fills_hidden_places_is_no_scale_for_the_others() -> None:
    shown = torch.rand(32, 64) < 0.5
    values = torch.randn(32, 64)
    for filler in (-1e9, -1e4, float(torch.finfo(torch.float32).min)):
        answer = torch.where(shown, values, filler)
        assert compare(torch.where(shown, 0.0, filler), answer) is not None
        assert compare(torch.where(shown, values + 1e-6, filler), answer) is None
    large = torch.randn(32, 64) * 1e6  # of which none is as large as another
    assert compare(large + 1, large) is None


def test_a_value_may_overflow_where_the_expected_one_nearly_does() -> None:
    expected = torch.ones(64, dtype=torch.float64)
    expected[3], expected[4] = -8e36, 8e32
    for at, value, is_right in (
        (3, -math.inf, True),
        (3, math.inf, False),
        (3, math.nan, False),
        (4, math.inf, False),
        (5, math.inf, False),
    ):
        answer = expected.float()
        answer[at] = value
        assert (compare(answer, expected, may_overflow=True) is None) is is_right, (at, value)
        assert compare(answer, expected) is not None
    halves = torch.full((64,), 6e4, dtype=torch.float16)
    assert compare(torch.where(torch.arange(64) == 3, math.inf, halves), halves, may_overflow=True) is not None
