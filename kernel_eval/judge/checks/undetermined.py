"""Few wrong elements that a rounding decides: what lies at the border of two steps may be on either side of it.

Of many values that are divided by a scale and rounded to whole numbers, some lie so near a half that a kernel which
multiplies with the inverse gives the other number. Where few elements are wrong, and each is what the task gives for
inputs and operators that are a few roundings off, the answer is right. Where many are, it is not: a kernel that does
otherwise than the task at a border is told by inputs of which many lie there.
"""

from __future__ import annotations

from typing import Any

import torch

from weir.kernel_eval.judge.checks.tolerance import Tolerance, usual
from weir.kernel_eval.tasks.answers import Expected
from weir.kernel_eval.tasks.reference import Reference

_MOST = 1000  # one of so many elements may be wrong
_LARGEST = 1 << 24  # elements of an answer that is looked at
_ROUNDINGS = 8.0  # halves by which inputs are off
# Each crosses a border that is near in half of all cases; neighbours of one another would move elements alike.
_PHASES = (1, 7, 31, 127, 521, 2053, 8209, 32771, 131_101, 524_309)


def are_undetermined(
    reference: Reference,
    model: Any,
    inputs: list[Any],
    expected: Expected,
    outputs: list[torch.Tensor],
    tolerances: list[Tolerance | None] | None = None,
) -> bool:
    """Whether the elements that are wrong are few, and roundings of the task's own give each of them.

    `tolerances`: of each output, where they are not the usual ones. Raises `OutOfMemory`.
    """
    of_outputs = tolerances or [usual(output.dtype) for output in outputs]
    wrong = [~_is_near(got, *pair) for got, *pair in zip(outputs, expected.outputs, of_outputs, strict=True)]
    if any(_MOST * int(one.sum()) > one.numel() or one.numel() > _LARGEST for one in wrong):
        return False
    for phase in _PHASES:
        near = reference.expected_float64(
            model, inputs, expected.outputs, roundings=_ROUNDINGS, alike=True, phase=phase
        )
        if near is None:
            return False
        for number, got in enumerate(outputs):
            wrong[number] &= ~_is_near(got, near[number], of_outputs[number])
        if not any(bool(one.any()) for one in wrong):
            return True
    return False


def _is_near(got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance | None) -> torch.Tensor:
    """Where an answer is within a tolerance of an element's own magnitude; its shape."""
    if tolerance is None:
        return got == expected.to(got.dtype)
    wide = torch.complex128 if got.is_complex() else torch.float64
    got, expected = got.to(wide), expected.to(wide)
    same = (got == expected) | (got.isnan() & expected.isnan())
    is_finite = torch.isfinite(got) & torch.isfinite(expected)
    return same | (is_finite & ((got - expected).abs() <= tolerance.relative * expected.abs() + tolerance.absolute))
