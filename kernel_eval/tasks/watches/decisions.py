"""Which ways a task's own code decides for some inputs: each comparison of floats, each bound, either way.

A task whose comparison goes one way for all draws does not need the other way's code. Decisions are numbered in the
order in which torch is asked for them, which is the same for inputs of one shape. Noted besides: numbers that inputs
are asked for, whether values are asked to be equal to others, and whether an operator chooses among values (`argmax`),
so that any of equal ones may be right.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_COMPARISONS = frozenset({"lt", "le", "gt", "ge"})
_EQUALITIES = frozenset({"eq", "ne"})
_BOUNDS = frozenset(
    {
        *("clamp", "clamp_min", "clamp_max", "hardtanh", "threshold", "minimum", "maximum", "fmin", "fmax"),
        *("relu", "relu6", "renorm"),
    }
)
_MATCHES = _EQUALITIES | {"isin"}
_FEW = 64  # numbers
_EXISTENCE = frozenset({"any", "all"})
_SIGNS = frozenset({"sign", "sgn", "heaviside", "signbit"})
_LOSSES = {"smooth_l1_loss": "beta", "huber_loss": "delta"}  # between two formulas, at a distance of the inputs
_SHRINKS = frozenset({"softshrink", "hardshrink"})
_AT = 3  # of that distance among the arguments
_IGNORING = frozenset({"nll_loss_forward", "nll_loss2d_forward"})
_IGNORED_AT = 4  # of the label that is ignored among the arguments
_CASTS = frozenset({"_to_copy", "copy_"})
_ADDS = frozenset({"index_add", "scatter_add", "scatter_reduce", "index_reduce"})  # at places that may repeat
_STORES = frozenset({"index_copy", "scatter", "put"})  # of what is stored at one place, any may stay
_PUTS = frozenset({"index_put", "_index_put_impl"})
_ACCUMULATES_AT = 3  # among the arguments
_PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "convolution"})
_COUNTS = frozenset({"bucketize", "searchsorted"})  # positions that no other one is as right as

Outcome = tuple[int, bool]
Branch = tuple[tuple[bool, ...], tuple[str, ...]]


class Decisions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active, the outcomes of the decisions of one call are noted."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.outcomes: set[Outcome] = set()
        self.of_one: list[bool] = []  # the outcomes of decisions about one number, in order
        self.ways: list[
            bool
        ] = []  # of each decision, in order, whether each of its outcomes occurs; of a bound, both sides
        self.path: list[str] = []  # the operators, in order: Python may take others
        self.values: set[float] = set()  # which the task asks its inputs themselves for, not what it computed
        self.integers: set[int] = set()  # which the task asks its integers for
        self.ignored: set[int] = set()  # labels that it leaves out, or torch does by default
        self.chooses = False
        self.adds = False  # whether it adds at places, or reduces otherwise what meets at one
        self.stores = False  # whether it stores at places
        self.matches = False  # whether it asks which values are equal to others
        self.compares_tensors = False  # whether values are compared with others, not with numbers
        self.product_size = 0  # elements of the largest product of matrices, or convolution
        self._computed: set[int] = set()  # addresses of storages
        self._num_decisions = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__.partition(".")[0]
        self.path.append(name)
        in_place = name.endswith("_")
        name = name.removesuffix("_")
        given: Any = args[0].clone() if in_place and name in _BOUNDS and _is_float(args[0]) else next(iter(args), None)
        result = func(*args, **kwargs)
        if _is_float(given):
            if name in _COMPARISONS:
                self._note(result.bool())
                self.compares_tensors = self.compares_tensors or any(map(_is_float, args[1:]))
                self._ask(args)
            elif name in _BOUNDS:
                self._note(result != given)
                self.ways += [bool((result < given).any()), bool((result > given).any())]
            elif name in _SIGNS:
                self._note(given > 0)
            elif name in _SHRINKS:
                self._note(result == 0)
            elif name in _LOSSES:
                distance = args[_AT] if len(args) > _AT else kwargs.get(_LOSSES[name], 1.0)
                self._note((args[0] - args[1]).abs() < distance)
            elif name == "histc":
                self.values |= {float(end) for end in args[2:4]}  # what lies at the ends is counted
            elif name in _EQUALITIES:
                self._ask(args)
                self.matches = self.matches or any(map(_is_float, args[1:]))
                self._note_one(result)
        else:
            if name in _MATCHES and isinstance(given, torch.Tensor) and _address(given) not in self._computed:
                self.integers |= set(map(int, self._few(args[1])))
            elif name == "_to_copy" and result.dtype is torch.bool and _address(given) not in self._computed:
                self.integers.add(0)
            self._note_count(name, given, result)
        if name in _COUNTS:
            values, bounds = args[:2] if name == "bucketize" else args[1::-1]
            self._ask((values, bounds))
        accumulates = name in _PUTS and len(args) > _ACCUMULATES_AT and bool(args[_ACCUMULATES_AT])
        self.adds = self.adds or name in _ADDS or accumulates
        self.stores = self.stores or name in _STORES or (name in _PUTS and not accumulates)
        if name in _PRODUCTS:
            self.product_size = max(self.product_size, result.numel())
        if name in _IGNORING and len(args) > _IGNORED_AT:
            self.ignored.add(args[_IGNORED_AT])
        if any(map(_is_float, args)) and name + "_" * in_place not in _CASTS | _COUNTS:
            made = result if isinstance(result, tuple | list) else (result,)
            self.chooses = self.chooses or any(map(_is_position, made))
        if isinstance(result, torch.Tensor):
            shared = {_address(value) for value in args if isinstance(value, torch.Tensor)}
            self._computed |= {_address(result)} - (shared - self._computed)
        return result

    @property
    def branch(self) -> Branch:
        """Which way a call took: what it decided about single numbers, and which operators it used."""
        return tuple(self.of_one), tuple(self.path)

    @property
    def is_one_sided(self) -> bool:
        """Whether some decision was the same for all that it was asked."""
        return any((number, not way) not in self.outcomes for number, way in self.outcomes)

    def _ask(self, compared: tuple[Any, ...]) -> None:
        """Note numbers that an input itself is compared with."""
        if len(compared) > 1 and _is_float(compared[0]) and _address(compared[0]) not in self._computed:
            self.values |= set(map(float, self._few(compared[1])))

    def _few(self, numbers: Any) -> list[Any]:
        """A number, or the few of a tensor that was not computed, as a buffer of special tokens has them."""
        if isinstance(numbers, torch.Tensor) and numbers.numel() <= _FEW and _address(numbers) not in self._computed:
            return numbers.flatten().tolist()
        return [numbers] if type(numbers) in (int, float) else []

    def _note(self, decided: torch.Tensor) -> None:
        number, self._num_decisions = self._num_decisions, self._num_decisions + 1
        self._note_one(decided)
        self.ways += [bool(decided.any()), not bool(decided.all())]
        self.outcomes |= {(number, way) for way, occurs in zip((True, False), self.ways[-2:], strict=True) if occurs}

    def _note_one(self, decided: torch.Tensor) -> None:
        if decided.numel() == 1:
            self.of_one.append(bool(decided))

    def _note_count(self, name: str, given: Any, result: Any) -> None:
        """Note what is decided about a number of values, or whether there are any."""
        if not isinstance(given, torch.Tensor):
            return
        if name in _COMPARISONS | _EQUALITIES | _EXISTENCE:
            self._note_one(result)
        elif name in _BOUNDS:
            self._note_one(result != given)


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_position(value: Any) -> bool:
    """Whether a value may be one: a tensor of integers."""
    whole = isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()
    return whole and value.dtype is not torch.bool
