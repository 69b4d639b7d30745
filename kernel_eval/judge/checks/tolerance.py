"""Compares one tensor with its expected value, within tolerances. Pure.

An element is right if |got - expected| ≤ tolerance · (|expected| + scale): the tolerances are KernelBench's (1e-4 for
float32, 1e-2 for half precision), but relative to the magnitude of the answer, so that zeros do not pass if all values
are tiny. The scale is the least of the root mean squares of the answer and of the slices that hold the element, one
along each dimension (`slices.py`), so that a small part of an answer is not lost beside a large one. NaN must appear
exactly at the positions where it is expected, and infinities likewise with their sign. Integers and booleans must be
equal.

An answer is compared with the reference's in the task's precision, then with the reference's in float64. There, each
element may also be wrong by a few times the reference's own error: on inputs where rounding is amplified, nobody can do
better. That error is the element's, or what is usual in its slices, since a single rounding may happen to be exact.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from weir.kernel_eval.judge.checks.slices import slices_of
from weir.kernel_eval.protocol import Fault

TOLERANCES = {
    torch.float64: 1e-7,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 1e-2,
    torch.complex64: 1e-4,
    torch.complex128: 1e-7,
}


class Difference(NamedTuple):
    """The first error of an answer."""

    fault: Fault
    message: str


OWN_ERRORS = 4.0  # how many times the reference's own error is allowed
_MOST = 0.9  # of a slice; a value that rounding moves to another step does not count for the others
_USUAL_ERRORS = 16.0  # how many times the error that is usual around it: among thousands of roundings some are as large


def compare(
    got: torch.Tensor, expected: torch.Tensor, own_errors: torch.Tensor | None = None, *, by_slices: bool = True
) -> Difference | None:
    """Compare tensors of the same shape; `expected` may be of higher precision. None if they agree.

    `own_errors`: those of the reference's answer in the task's precision, not negative; allowed `OWN_ERRORS` times.
    `by_slices`: whether a slice may be no further off than its own root mean square allows.
    """
    if got.numel() == 0:
        return None
    tolerance = TOLERANCES.get(got.dtype)
    if tolerance is None:
        wrong = got != expected
        return _difference(wrong, None) if bool(wrong.any()) else None
    least = torch.finfo(got.dtype).tiny  # smaller numbers have fewer digits, or become zeros
    wide = torch.complex128 if got.is_complex() else torch.float64
    got, expected = got.to(wide), expected.to(wide)
    special_wrong = _specials_differ(got, expected)
    if bool(special_wrong.any()):
        count = int(special_wrong.sum())
        return Difference(
            Fault.NON_FINITE,
            f"{count} of {got.numel()} values are NaN or infinite where they should not be, or not where they should",
        )
    finite = torch.isfinite(expected)
    zeros = torch.zeros_like(expected.abs())
    magnitude = torch.where(finite, expected.abs(), zeros)
    error = torch.where(finite, (got - expected).abs(), zeros)
    excess = error - tolerance * magnitude - least
    if not bool((excess > 0).any()):
        return None
    scale = magnitude.square().sum().div(max(1, int(finite.sum()))).sqrt().expand(magnitude.shape)
    if by_slices:
        for slices in slices_of(magnitude.shape):
            scale = torch.minimum(scale, slices.root_mean_square(magnitude, finite))
    allowed = tolerance * scale
    if own_errors is not None:
        own = own_errors.nan_to_num(0.0, 0.0, 0.0)
        allowed = allowed + torch.maximum(OWN_ERRORS * own, _USUAL_ERRORS * _usual(own))
    wrong = excess > allowed
    return _difference(wrong, error / scale.clamp_min(torch.finfo(torch.float64).tiny)) if bool(wrong.any()) else None


def _usual(errors: torch.Tensor) -> torch.Tensor:
    """The error that nine tenths of a slice stay below: the least of the slices that hold an element."""
    usual = [slices.quantile(errors, _MOST) for slices in slices_of(errors.shape)]
    return functools.reduce(torch.minimum, usual) if usual else errors.flatten().quantile(_MOST)


def _specials_differ(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    nan_differs = got.isnan() != expected.isnan()
    inf_differs = (got.isinf() != expected.isinf()) | (got.isinf() & expected.isinf() & (got != expected))
    return nan_differs | inf_differs


def _difference(wrong: torch.Tensor, error: torch.Tensor | None) -> Difference:
    """The message: how many values are wrong, where, and by how much. An expected value is never shown.

    Whoever could read expected values from messages could store them instead of computing them.
    """
    first = tuple(int(i) for i in wrong.nonzero()[0])
    where = f"the first at index {list(first)}" if first else "its only one"
    size = "" if error is None else f", by up to {float(error[wrong].max()):.2g} times the root mean square around it"
    return Difference(Fault.OUTPUT_MISMATCH, f"{int(wrong.sum())} of {wrong.numel()} values are wrong, {where}{size}")
