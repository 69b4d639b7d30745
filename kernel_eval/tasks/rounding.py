"""Float64 as it is, or off by the roundings of float32: no kernel avoids what those change.

Arguments are moved by at most half a rounding, and so are the results of the operators that compute with them
(`RoundedOperators`), since a kernel rounds elsewhere than the reference does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from weir.kernel_eval.tasks.watches.pointwise import THROUGH_ONE
from weir.kernel_eval.tasks.watches.variances import VARIANCES, in_one_pass

_SUMS = frozenset(("sum", "mean", "linalg_vector_norm"))
_PRODUCTS = frozenset(("dot", "mv", "mm", "bmm"))
_PRIME = 1_048_573  # so many moves of different values
_PIECE = 1 << 20  # elements that are moved together
_FEW = 16  # elements that show that a tensor is no mask
_OF_ONE = 2.0  # times a quarter to a half of the step beside one
_GELU_ENDS = -6.0
_ENDS_AT_ONE = frozenset({"tanh", "elu", "expm1"})
_OF_SQUARES = 4.0  # times a quarter to a half of a rounding: each of the two that are subtracted is off by one
_GOLDEN = 0.6180339887498949  # its multiples are spread evenly between whole numbers
# Operators whose results are rounded; others move values, choose among them, or give a few of them.
_ROUND = frozenset(
    """add sub rsub mul div reciprocal addcmul addcdiv lerp pow square sqrt rsqrt exp exp2 expm1 log log2 log10 log1p
    sin cos tan tanh sinh cosh asin acos atan atan2 erf erfc sigmoid silu gelu mish elu softplus hardswish hardsigmoid
    _softmax _log_softmax logsumexp native_layer_norm native_group_norm native_batch_norm sum mean var std prod cumsum
    cumprod linalg_vector_norm mm bmm addmm baddbmm mv dot addmv convolution avg_pool2d mse_loss smooth_l1_loss
    """.split()  # noqa: SIM905  # read as a text
)


def in_float64(value: Any) -> Any:
    """A copy of an argument with its tensors of fractions in float64; lists and tuples are followed."""
    if isinstance(value, list | tuple):
        return type(value)(in_float64(item) for item in value)
    if not isinstance(value, torch.Tensor):
        return value
    wide = torch.complex128 if value.is_complex() else torch.float64 if value.is_floating_point() else value.dtype
    return value.to(wide, copy=True)


def nudged(value: Any, times: float = 1.0, exact: Sequence[float] = (), *, alike: bool = False, phase: int = 1) -> Any:
    """A copy of an argument in float64, off by at most half a rounding of float32, or of float64 where it is of that.

    `times`: by how many times as much. `exact`: values that stay, which a task asks for (`x == 7`). `alike`: what is
    equal stays equal. `phase`: each moves elements otherwise. Masks of zeros and ones stay: `(1 - mask) * -1e9` would
    be anything.
    """
    if isinstance(value, list | tuple):
        return type(value)(nudged(item, times, exact, alike=alike, phase=phase) for item in value)
    if isinstance(value, torch.Tensor) and value.is_complex():
        parts = (value.real, value.imag)
        return torch.complex(*(nudged(part, times, exact, alike=alike, phase=phase) for part in parts))
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or _is_mask(value):
        return in_float64(value)
    by = times * torch.finfo(torch.float64 if value.dtype is torch.float64 else torch.float32).eps
    kept = [float(torch.tensor(number, dtype=value.dtype)) for number in exact]
    made = value.to(torch.float64, copy=True)
    for start, piece in _pieces(made):
        moves = _moves(piece, phase, alike, start).mul_(by)
        for number in kept:
            moves.masked_fill_(piece == number, 0.0)
        piece.mul_(moves.add_(1))
    return made


def _is_mask(value: torch.Tensor) -> bool:
    few = value.reshape(-1)[:_FEW]
    return bool(((few == 0) | (few == 1)).all()) and bool(((value == 0) | (value == 1)).all())


class WideOperators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, what a task makes or converts in float32 (`x.float()`, `torch.zeros(n)`) is in float64.

    What it makes in half precision, and draws at random, is what it is.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._default = torch.get_default_dtype()

    def __enter__(self) -> Self:
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.set_default_dtype(self._default)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator in float64 where it would run in float32."""
        kwargs = dict(kwargs or {})
        takes_dtype = any(argument.name == "dtype" for argument in func._schema.arguments)
        if torch.Tag.nondeterministic_seeded in func.tags:
            if takes_dtype and kwargs.get("dtype") is None:
                kwargs["dtype"] = self._default
        elif kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        if not func._schema.is_mutable:
            args, kwargs = tree_map_only(torch.Tensor, _widened, (args, kwargs))
        return func(*args, **kwargs)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.dtype is torch.float32 else tensor


class RoundedOperators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, each result in float64 is off by a part of a rounding of float32, unless float32 holds it exactly.

    What float32 holds exactly (sums of small whole numbers, say) is not moved, so that equalities of such numbers stay;
    a sum of what it does not hold (of shares that make one) is.
    `alike`: equal results stay equal, those of other operators too (`a * r > a * r.clamp(max=1.2)`). `times`: by how
    many times as much they are off: a sum of many is further off than by one rounding of its own. `formulas`: those
    of `THROUGH_ONE` are off by a rounding of one, and variances by a rounding of the mean square (`variances.py`).
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self, *, alike: bool = False, phase: int = 1, times: float = 1.0, formulas: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alike = alike
        self._formulas = formulas
        self._times = times
        self._phase = phase
        self._num_rounded = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, and move what it computed."""
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.removesuffix("_")
        if self._formulas and name in VARIANCES and args[0].dtype is torch.float64:
            result = in_one_pass(name, args, kwargs or {}, result, self._off)
        if name in _ROUND or name in THROUGH_ONE:
            first = result[0] if isinstance(result, tuple) else result
            if isinstance(first, torch.Tensor) and first.dtype is torch.float64:
                self._num_rounded += not self._alike
                by_chance = _exact_by_chance(func, name, args, kwargs or {}, first)
                for start, piece in _pieces(first):
                    self._round(piece, start, by_chance)
                    if self._formulas and name in THROUGH_ONE:
                        self._move_by_one(name, piece, args[0], start)
        return result

    def _off(self, squares: torch.Tensor) -> torch.Tensor:
        """By how much variances are off that are made of mean squares."""
        moves = _moves(squares, self._phase + self._num_rounded, self._alike)
        return moves.mul_(_OF_SQUARES * torch.finfo(torch.float32).eps).mul_(squares)

    def _round(self, values: torch.Tensor, start: int, by_chance: torch.Tensor | None) -> None:
        """Move values in place, otherwise for each operator. `start`: as in `_moves`. `by_chance`: of all of them."""
        moves = _moves(values, self._phase + self._num_rounded, self._alike, start)
        moves.mul_(self._times * torch.finfo(torch.float32).eps)
        exact = values.float() == values
        if by_chance is not None:
            exact &= ~by_chance.reshape(-1)[start : start + values.numel()].view(values.shape)
        values.mul_(moves.masked_fill_(exact, 0.0).add_(1))

    def _move_by_one(self, name: str, values: torch.Tensor, given: torch.Tensor, start: int) -> None:
        """Move what a formula through one gives, in place. `given`: of what; `values` begin at its element `start`."""
        moves = _moves(values, self._phase + self._num_rounded, True, start)
        moves.mul_(_OF_ONE * torch.finfo(torch.float32).eps)
        if name == "gelu":  # `x * (1 + tanh(…)) / 2`, which is zero far below zero
            moves.mul_(given.reshape(-1)[start : start + values.numel()].view(values.shape).clamp_min(_GELU_ENDS))
        if name in _ENDS_AT_ONE:  # where nothing is lost that float32 would hold
            moves.mul_((1 - values.abs()).clamp_min_(0))
        moves.masked_fill_((values + moves) * values < 0, 0.0)  # a formula gives zero, and no other sign
        values.add_(moves)


def _exact_by_chance(
    func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor
) -> torch.Tensor | None:
    """Which sums float32 may hold though it does not hold their terms; the result's shape. None: no such operator."""
    if name not in _SUMS | _PRODUCTS or args[0].dtype is not torch.float64 or "out" in kwargs:
        return None
    if name == "linalg_vector_norm" and args[1:2] not in ((), (1,), (2,)):  # the largest is one of them
        return None
    if not bool(((result.float() == result) & (result != 0)).any()):
        return None
    terms = [(_inexact(args[0]), *args[1:])]
    if name in _PRODUCTS:
        one, two = args
        terms = [(_inexact(one), (two != 0).double()), ((one != 0).double(), _inexact(two))]
    numbers: list[torch.Tensor] = [func(*some, **kwargs) for some in terms]
    return functools.reduce(torch.logical_or, (number > 0 for number in numbers))


def _inexact(values: torch.Tensor) -> torch.Tensor:
    return (values.float() != values).double()


def _pieces(values: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Views of few elements each, and how many are before them; of what is not contiguous, all of it."""
    if values.numel() <= _PIECE or not values.is_contiguous():
        yield 0, values
        return
    for number, piece in enumerate(torch.split(values.view(-1), _PIECE)):
        yield number * _PIECE, piece


def _moves(like: torch.Tensor, phase: int, alike: bool, start: int = 0) -> torch.Tensor:
    """For each element a quarter to a half, up or down: none is so small that it would show nothing.

    `alike`: the same for equal elements, of whatever operator. `start`: how many elements are before these.
    """
    if alike:
        bits = like.double().contiguous().view(torch.int64)
        moves = (bits ^ (bits >> 32)).remainder_(_PRIME).double()
    else:
        first, last = start + 1, start + like.numel() + 1
        moves = torch.arange(first, last, dtype=torch.float64, device=like.device).view(like.shape)
    moves.mul_(_GOLDEN * phase).remainder_(1).sub_(0.5)
    return moves.div_(2).add_(moves.sign(), alpha=0.25)
