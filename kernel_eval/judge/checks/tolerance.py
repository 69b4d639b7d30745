"""Compares one tensor with its expected value, within tolerances. Pure.

An element is right if |got - expected| ≤ tolerance · (|expected| + RMS(expected)): the tolerances are KernelBench's
(1e-4 for float32, 1e-2 for half precision), but relative to the magnitude of the answer, so that zeros do not pass if
all values are tiny. NaN must appear exactly at the positions where it is expected, and infinities likewise with their
sign. Integers and booleans must be equal.

An answer is compared with the reference's in the task's precision, then with the reference's in float64. There, each
element may also be wrong by a few times the reference's own error in the task's precision: on inputs where rounding is
amplified, nobody can do better.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

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


def compare(got: torch.Tensor, expected: torch.Tensor, rounded: torch.Tensor | None = None) -> Difference | None:
    """Compare tensors of the same shape; `expected` may be of higher precision. None if they agree.

    `rounded` is the reference's answer in the task's precision; its error is allowed `OWN_ERRORS` times.
    """
    if got.numel() == 0:
        return None
    tolerance = TOLERANCES.get(got.dtype)
    if tolerance is None:
        wrong = got != expected
        return _difference(wrong, None) if bool(wrong.any()) else None
    wide = torch.complex128 if got.is_complex() else torch.float64
    got, expected = got.to(wide), expected.to(wide)
    finite = torch.isfinite(expected)
    special_wrong = _specials_differ(got, expected)
    if bool(special_wrong.any()):
        count = int(special_wrong.sum())
        return Difference(
            Fault.NON_FINITE,
            f"{count} of {got.numel()} values are NaN or infinite where they should not be, or not where they should",
        )
    magnitude = torch.where(finite, expected.abs(), torch.zeros_like(expected.abs()))
    rms = magnitude.square().sum().div(max(1, int(finite.sum()))).sqrt()
    error = torch.where(finite, (got - expected).abs(), torch.zeros_like(magnitude))
    allowed = tolerance * (magnitude + rms)
    if rounded is not None:
        allowed = allowed + OWN_ERRORS * (rounded.to(wide) - expected).abs().nan_to_num(0.0, 0.0, 0.0)
    wrong = error > allowed
    return _difference(wrong, error / rms.clamp_min(torch.finfo(torch.float64).tiny)) if bool(wrong.any()) else None


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
    size = "" if error is None else f", by up to {float(error[wrong].max()):.2g} times the answer's root mean square"
    return Difference(Fault.OUTPUT_MISMATCH, f"{int(wrong.sum())} of {wrong.numel()} values are wrong, {where}{size}")
