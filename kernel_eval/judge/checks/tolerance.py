"""Compares one tensor with its expected value, within tolerances. Pure.

An element is right if |got - expected| ≤ tolerance · (|expected| + scale): the tolerances are KernelBench's (1e-4 for
float32, 1e-2 for half precision; 1e-10 for float64, so that float32 does not pass), but relative to the magnitude of
the answer, so that zeros do not pass if all values are tiny. The scale is the least of the root mean squares of the
answer and of the slices that hold the element, one along each dimension (`slices.py`), so that a small part of an
answer is not lost beside a large one, nor beside what fills places that a mask hides (-1e9). Where the whole answer's
scale allows two roundings of one, any element may be off by them, since formulas pass through one (a tanh made of a
sigmoid). NaN must appear exactly at the positions where it is expected, and infinities likewise with their sign; where
`may_overflow`, infinity is right for an expected value that is nearly the largest of its type, too: a part of a long
sum of products overflows earlier in another order.
Integers and booleans must be equal. Answers are large: few elements are looked at together.

An answer is compared with the reference's in the task's precision, then with the reference's in float64. There, each
element may also be wrong by a few times the reference's own error: on inputs where rounding is amplified, nobody can do
better. That error is the element's, or what is usual in its slices, since a single rounding may happen to be exact.
Where that would allow most elements half of their scale, a draw tells nothing (`can_tell`).

These tolerances leave room for terms that are smaller. Therefore an answer to the task's own draw has to be nearer
(`near_tolerance`): as near as honest kernels are, whatever the order in which they add.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch

from weir.kernel_eval.judge.checks.slices import pieces_of, slices_of
from weir.kernel_eval.protocol import Fault

TOLERANCES = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 1e-2,
    torch.complex64: 1e-4,
    torch.complex128: 1e-10,
}


_USUAL_ERRORS = 16.0  # how many times the error that is usual around it: among thousands of roundings some are as large


class Tolerance(NamedTuple):
    """What is allowed: of an element's magnitude and scale, whatever these are, and of errors that are usual around it.

    usual_errors: how many times those of the reference.
    """

    relative: float
    absolute: float
    usual_errors: float = _USUAL_ERRORS


class Difference(NamedTuple):
    """The first error of an answer."""

    fault: Fault
    message: str


_NEAR = 1e-5  # of float32: sums of any order, and products by fewer multiplications, are nearer
_NEAR_BY_VALUE = 2e-6  # where each value is computed from few
_ROUNDINGS_OF_ONE = 2.0  # numbers near one are passed through, by a tanh that is made of exponentials, say
OWN_ERRORS = 4.0  # how many times the reference's own error is allowed
_MOST_ALLOWED = 0.5  # of an element's scale; beyond it, zeros would pass
_PIECE = 1 << 20  # elements
_SINGLE = 1e-6  # as near as float32 gets
_SINGLE_ADVICE = (
    ": as near as float32, where float64 is asked for; Python floats that a kernel is given as arguments are float32, "
    "those that are tl.constexpr are not"
)
_MOST = 0.9  # of a slice; a value that rounding moves to another step does not count for the others
_TEN = 10
_MOST_OF_FEW = 0.75  # of fewer than ten elements
_OF_ZEROS = 1e-3  # the scale of a slice of zeros, of that of the whole answer: it has none of its own
_FILLER, _OTHERS, _NEAR_FILLER = 5e3, 1e3, 0.99  # at least; times others at least; so much of the largest
_WIDE, _NEAR_LARGEST = 1e30, 2.0**-16  # the largest value of a type that is wide, and how near to it parts may overflow
_OF_HALVES = 2.0  # times the usual error, where each value passes through few roundings


def usual(dtype: torch.dtype) -> Tolerance | None:
    """The tolerance of each comparison; None where values must be equal."""
    relative = TOLERANCES.get(dtype)
    least = torch.finfo(dtype).tiny if relative is not None else 0.0  # smaller ones have fewer digits, or become zeros
    return None if relative is None else Tolerance(relative, least)


def near_tolerance(dtype: torch.dtype, *, by_value: bool) -> Tolerance | None:
    """The tolerance of answers to the task's own draw; None where it is the usual one.

    `by_value`: whether all operators of the task work value by value. In half precision, nobody's answer to such a task
    is further off than a rounding of it and what the reference's own operators lose.
    """
    if dtype in (torch.float16, torch.bfloat16) and by_value:
        return Tolerance(torch.finfo(dtype).eps / 2, torch.finfo(dtype).tiny, _OF_HALVES)
    if dtype not in (torch.float32, torch.complex64):
        return None
    limits = torch.finfo(dtype)
    return Tolerance(_NEAR_BY_VALUE, _ROUNDINGS_OF_ONE * limits.eps) if by_value else Tolerance(_NEAR, limits.tiny)


def compare(
    got: torch.Tensor,
    expected: torch.Tensor,
    own_errors: torch.Tensor | None = None,
    *,
    by_slices: bool = True,
    tolerance: Tolerance | None = None,
    into: torch.Tensor | None = None,
    may_overflow: bool = False,
) -> Difference | None:
    """Compare tensors of the same shape; `expected` may be of higher precision. None if they agree.

    `own_errors`: those of the reference's answer in the task's precision, not negative; allowed `OWN_ERRORS` times.
    `by_slices`: whether a slice may be no further off than its own root mean square allows. `tolerance`: if it is not
    the usual one. `into`: takes whether each element is wrong, of that shape, false before. `may_overflow`: whether the
    order of operations is open, so that what is nearly too large may be infinite.
    """
    tolerance = tolerance or usual(got.dtype)
    if got.dtype is expected.dtype is torch.bool:  # by bytes: what reads them takes no other than 0 and 1
        got, expected = got.view(torch.uint8), expected.view(torch.uint8)
    found = _Wrong(got.numel(), into)
    if got.numel() == 0 or _is_close(got, expected, tolerance):
        return None
    if tolerance is None:
        for at in pieces_of(got.shape):
            wrong = got[at] != expected[at]
            if bool(wrong.any()):
                found.add(wrong, at)
        return found.difference(None)
    if may_overflow and any(bool(got[at].isinf().any()) for at in pieces_of(got.shape)):
        got = torch.where(_overflows(got, expected), expected.to(got.dtype), got)
    num_special = sum(int(_specials_differ(got[at], expected[at]).sum()) for at in pieces_of(got.shape))
    if num_special:
        for at in pieces_of(got.shape) if into is not None else ():
            found.add(_specials_differ(got[at], expected[at]), at)
        return Difference(
            Fault.NON_FINITE,
            f"{num_special} of {got.numel()} values are NaN or infinite where they should not be, or not where they "
            "should",
        )
    scales = _Scales(expected, by_slices=by_slices)
    around = [] if own_errors is None else _usual(own_errors)
    for at in pieces_of(got.shape):
        own = None if own_errors is None else own_errors[at]
        _compare_piece(found, at, got[at], expected[at], tolerance, scales, own, _parts(around, at))
    return found.difference(tolerance.relative)


def _compare_piece(
    found: _Wrong,
    at: tuple[slice, ...],
    got: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    scales: _Scales,
    own_errors: torch.Tensor | None,
    usual: list[torch.Tensor],
) -> None:
    """Add what is wrong in a piece of an answer."""
    magnitude, finite = _magnitude(expected)
    scale = scales.of(at)
    least = min(_ROUNDINGS_OF_ONE * _eps(got.dtype), tolerance.relative * scales.whole)
    wide = torch.complex128 if got.is_complex() else torch.float64
    error = (got.to(wide) - expected.to(wide)).abs().masked_fill_(~finite, 0.0)
    allowed = (tolerance.relative * (magnitude + scale)).clamp_min_(least) + tolerance.absolute
    if own_errors is not None:
        allowed = allowed + _excused(own_errors, usual, tolerance.usual_errors)
    wrong = error > allowed
    if bool(wrong.any()):
        scale = scale.expand(magnitude.shape)[wrong]
        found.add(wrong, at, error[wrong], magnitude[wrong], scale)


def can_tell(expected: torch.Tensor, own_errors: torch.Tensor) -> bool:
    """Whether right answers are told from zeros: for half of the elements, less than half of their scale is allowed."""
    if expected.numel() == 0 or not (expected.is_floating_point() or expected.is_complex()):
        return True
    scales, around = _Scales(expected, by_slices=True), _usual(own_errors)
    num_finite, num_untold = 0, 0
    for at in pieces_of(expected.shape):
        finite = torch.isfinite(expected[at])
        excused = _excused(own_errors[at], _parts(around, at))
        num_finite += int(finite.sum())
        num_untold += int((finite & (excused > scales.of(at) * _MOST_ALLOWED)).sum())
    return 2 * num_untold <= num_finite


class _Scales:
    """The least root mean square of what holds an element of a tensor: all of it, and its slices."""

    def __init__(self, expected: torch.Tensor, *, by_slices: bool) -> None:
        slices = slices_of(expected.shape) if by_slices else []
        sums = [expected.new_zeros((2, expected.shape[one.dimension]), dtype=torch.float64) for one in slices]
        squares, count = 0.0, 0
        filler = _filler(expected)
        for at in pieces_of(expected.shape):
            magnitude, finite = _magnitude(expected[at])
            finite &= magnitude < filler
            magnitude.masked_fill_(~finite, 0.0)
            magnitude.square_()
            squares, count = squares + float(magnitude.sum()), count + int(finite.sum())
            for one, (square, number) in zip(slices, sums, strict=True):
                others = [d for d in range(expected.dim()) if d != one.dimension]
                square[at[one.dimension]] += magnitude.sum(others) if others else magnitude
                number[at[one.dimension]] += finite.sum(others) if others else finite
        self._whole = torch.tensor(math.sqrt(squares / max(1, count)), dtype=torch.float64, device=expected.device)
        measured = [one.root_mean_square(*both) for one, both in zip(slices, sums, strict=True)]
        self._slices = [torch.where(scale > 0, scale, self._whole * _OF_ZEROS) for scale in measured]

    @property
    def whole(self) -> float:
        """That of all of it."""
        return float(self._whole)

    def of(self, at: tuple[slice, ...]) -> torch.Tensor:
        """Those of a piece; broadcasts to its shape."""
        return functools.reduce(torch.minimum, _parts(self._slices, at), self._whole)


def _filler(expected: torch.Tensor) -> float:
    """From which magnitude on elements only fill places: several are nearly the same, and far larger than all others.

    They count for no scale, as infinities do: beside -1e9, any other value would be right. Infinite if there are none.
    """
    largest = max((float(_magnitude(expected[at])[0].max()) for at in pieces_of(expected.shape)), default=0.0)
    if largest < _FILLER:
        return math.inf
    num_fillers, num_others, squares = 0, 0, 0.0
    for at in pieces_of(expected.shape):
        magnitude, finite = _magnitude(expected[at])
        others = finite & (magnitude < _NEAR_FILLER * largest)
        num_fillers += int((finite & ~others).sum())
        num_others += int(others.sum())
        squares += float(magnitude[others].square().sum())
    is_filler = num_fillers > 1 and num_others and _OTHERS * math.sqrt(squares / num_others) < largest
    return _NEAR_FILLER * largest if is_filler else math.inf


def _eps(dtype: torch.dtype) -> float:
    """That of what kernels compute in, which is float32 where values are half precision."""
    return torch.finfo(dtype if torch.finfo(dtype).bits >= 32 else torch.float32).eps


class _Wrong:
    """The wrong elements of an answer of so many, piece by piece."""

    def __init__(self, num_elements: int, into: torch.Tensor | None) -> None:
        self._num_elements = num_elements
        self._into = into
        self._num_wrong = 0
        self._first: tuple[int, ...] = ()
        self._largest = 0.0  # error, relative to the scale
        self._is_single = True  # all are as near as float32

    def add(
        self,
        wrong: torch.Tensor,
        at: tuple[slice, ...],
        errors: torch.Tensor | None = None,
        magnitudes: torch.Tensor | None = None,
        scales: torch.Tensor | None = None,
    ) -> None:
        """Add a piece with wrong elements, and their errors; none for whole numbers."""
        if self._into is not None:
            self._into[at] = wrong
        if not self._num_wrong and bool(wrong.any()):
            starts = (part.start or 0 for part in at)
            self._first = tuple(int(i) + start for i, start in zip(wrong.nonzero()[0], starts, strict=True))
        self._num_wrong += int(wrong.sum())
        if errors is not None and magnitudes is not None and scales is not None:
            relative = errors / scales.clamp_min(torch.finfo(torch.float64).tiny)
            self._largest = max(self._largest, float(relative.max()))
            self._is_single &= not bool((errors > _SINGLE * (magnitudes + scales)).any())

    def difference(self, tolerance: float | None) -> Difference | None:
        """The message: how many values are wrong, where, and by how much. An expected value is never shown.

        Whoever could read expected values from messages could store them instead of computing them.
        """
        if not self._num_wrong:
            return None
        where = f"the first at index {list(self._first)}" if self._first else "its only one"
        size = "" if tolerance is None else f", by up to {self._largest:.2g} times the root mean square around it"
        advice = _SINGLE_ADVICE if tolerance is not None and tolerance < _SINGLE and self._is_single else ""
        message = f"{self._num_wrong} of {self._num_elements} values are wrong, {where}{size}{advice}"
        return Difference(Fault.OUTPUT_MISMATCH, message)


def _magnitude(expected: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The magnitudes in float64, zero where one is not finite, and where they are finite."""
    finite = torch.isfinite(expected)
    wide = expected.to(torch.complex128 if expected.is_complex() else torch.float64)
    return wide.abs().masked_fill_(~finite, 0.0), finite


def _parts(of_slices: list[torch.Tensor], at: tuple[slice, ...]) -> list[torch.Tensor]:
    """What tensors that have one index in all dimensions but one hold for a piece."""
    return [
        one[tuple(part if size > 1 else slice(None) for part, size in zip(at, one.shape, strict=True))]
        for one in of_slices
    ]


def _excused(own_errors: torch.Tensor, usual: list[torch.Tensor], times: float = _USUAL_ERRORS) -> torch.Tensor:
    """How far off elements may be because the reference's are; `times`: as in `Tolerance`."""
    own = own_errors.double().nan_to_num_(0.0, 0.0, 0.0)
    return torch.maximum(OWN_ERRORS * own, times * functools.reduce(torch.minimum, usual))


def _is_close(got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance | None) -> bool:
    """Whether each element is as near as its own magnitude allows. Few are examined at a time: answers are large."""
    pieces = zip(torch.split(got.reshape(-1), _PIECE), torch.split(expected.reshape(-1), _PIECE), strict=True)
    if tolerance is None:
        return all(bool((one == two).all()) for one, two in pieces)
    wide = torch.complex128 if got.is_complex() else torch.float64
    for one, two in pieces:
        one, two = one.to(wide), two.to(wide)
        near = ((one - two).abs() <= tolerance.relative * two.abs() + tolerance.absolute) & torch.isfinite(two)
        if not bool((near | (one == two) | (one.isnan() & two.isnan())).all()):
            return False
    return True


def _usual(errors: torch.Tensor) -> list[torch.Tensor]:
    """The error that nine tenths of each slice stay below, for each dimension; of all, where there are no slices.

    Nine tenths of fewer than ten are all of them: there, one is left out for each four.
    """
    errors = errors.nan_to_num(0.0, 0.0, 0.0)
    usual = [slices.quantile(errors, _MOST).double() for slices in slices_of(errors.shape)]
    if usual:
        return usual
    count = errors.numel()
    rank = math.ceil((_MOST if count >= _TEN else _MOST_OF_FEW) * count)
    return [errors.flatten().kthvalue(rank).values.double().view([1] * errors.dim())]


def _specials_differ(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    nan_differs = got.isnan() != expected.isnan()
    inf_differs = (got.isinf() != expected.isinf()) | (got.isinf() & expected.isinf() & (got != expected))
    return nan_differs | inf_differs


def _overflows(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Where an answer is infinite and the expected one, of its sign, so large that a part of it may overflow."""
    if got.is_complex() or torch.finfo(got.dtype).max < _WIDE:
        return torch.zeros_like(got, dtype=torch.bool)
    near_largest = expected.abs() > torch.finfo(got.dtype).max * _NEAR_LARGEST
    return got.isinf() & near_largest & expected.isfinite() & ((got > 0) == (expected > 0))


def is_within(got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    """Whether each finite element is as near as a tolerance allows of its magnitude and that of the whole answer."""
    wide = torch.complex128 if got.is_complex() else torch.float64
    got, expected = got.to(wide), expected.to(wide)
    finite = torch.isfinite(expected) & torch.isfinite(got)
    magnitude = torch.where(finite, expected.abs(), 0.0)
    rms = magnitude.square().sum().div(max(1, int(finite.sum()))).sqrt()
    return bool((torch.where(finite, (got - expected).abs(), 0.0) <= tolerance * (magnitude + rms)).all())
