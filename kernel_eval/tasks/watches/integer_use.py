"""How a task uses the integers among its inputs: as numbers, as positions, as what is compared, as counts of shifts.

Followed from operator to operator, from the inputs on. An integer that is compared with positions (`arange < lengths`)
is bounded by them, and one that is only compared with numbers of the task's code (`kind == 3`) says which of several
ways is taken: a kernel may loop so far, or look something up there, as the task does not. What a shift is given lies
below the width of what is shifted, beyond which no language defines it.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

_VALUES = frozenset(
    """sum amax amin aminmax max min prod cumsum cumprod cummax cummin any all mean mm bmm matmul dot mv cat stack flip
    roll""".split()  # noqa: SIM905  # read as a text
)  # besides operators that work value by value: they take integers as values
_COPIES = frozenset(
    """where clone copy_ _to_copy detach lift_fresh fill_ zero_ zeros_like ones_like full_like equal set_ new_empty
    split floor_divide floor_divide_ rsub masked_fill masked_fill_ __and__ __or__ __xor__ tril triu
    """.split()  # noqa: SIM905  # read as a text
)  # which work value by value, too, or do what inputs are copied and compared with
_MOVES = frozenset(
    """where clone copy_ _to_copy detach lift_fresh masked_fill masked_fill_ tril triu cat stack flip roll repeat split
    """.split()  # noqa: SIM905  # read as a text
)  # give what they were given, perhaps as another dtype
_EQUALITIES = frozenset({"eq", "ne"})
_ASK_EQUAL = _EQUALITIES | {"isin", "nll_loss_forward", "nll_loss2d_forward"}
_ORDERS = frozenset({"lt", "le", "gt", "ge"})
_BOUNDS = frozenset({"clamp", "clamp_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_"})
_SHIFTS = frozenset(
    """bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ __ilshift__ __irshift__ bitwise_left_shift_
    bitwise_right_shift_""".split()  # noqa: SIM905  # read as a text
)
PLACED_AT = {
    **dict.fromkeys(("index", "index_put", "index_put_", "embedding", "take"), 1),
    **dict.fromkeys(("gather", "index_select", "index_add", "index_copy", "scatter", "scatter_", "scatter_add"), 2),
}
"""Where operators are given places, among their arguments."""
_NONE: frozenset[int] = frozenset()


class IntegerUse(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active: how one call of a model uses its integers, which are numbered in their order."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self, inputs: list[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.only_computes = True  # none of them is a position or a size
        self.is_pointwise = True
        self.shifts: dict[int, int] = {}  # what says how far something is shifted, and the width of that in bits
        self.bounds: dict[int, set[int]] = {}  # the numbers beside those that an order asks for, by integer
        self.limits: dict[int, set[int]] = {}  # those beside the ends that they are clamped to
        self.ordered: set[tuple[int, int]] = set()  # pairs of which it asks which is larger, the lower number first
        self.counted: set[int] = set()  # masks of which it makes a number that it keeps from being zero
        self.asked: set[int] = set()  # those that are compared for equality, or say what a loss takes
        self._among_positions: set[int] = set()
        self._numbers: set[int] = set()
        self._seen: set[int] = set()
        self._integers = WeakTensorKeyDictionary()  # tensors made of them alone, and which
        self._of_masks = WeakTensorKeyDictionary()  # tensors made of booleans alone, and which
        self._given = WeakTensorKeyDictionary()  # tensors made of any input
        self._by_value = WeakTensorKeyDictionary()  # tensors that are integers of the inputs, or follow value by value
        numbers = itertools.count()
        for value in tree_leaves(inputs):
            if isinstance(value, torch.Tensor):
                self._given[value] = True
                if not (value.is_floating_point() or value.is_complex()):
                    self._integers[value] = frozenset({next(numbers)})
                    self._by_value[value] = True
                    if value.dtype is torch.bool:
                        self._of_masks[value] = self._integers[value]

    def compared(self, outputs: list[torch.Tensor]) -> frozenset[int]:
        """The integers that have no place beyond their own range, after the call whose `outputs` these are."""
        answered = _NONE.union(*map(self._held_by, outputs))
        return frozenset(self._among_positions | (self._seen - self._numbers - answered)) - self.shifts.keys()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        is_view = any(made.alias_info is not None and not made.alias_info.is_write for made in func._schema.returns)
        given = [value for value in tree_leaves((args, kwargs or {})) if isinstance(value, torch.Tensor)]
        name = func.__name__.partition(".")[0]
        by_value = is_view or torch.Tag.pointwise in func.tags or name in _COPIES
        if not by_value and any(map(_is_integral, given)):
            self.is_pointwise = False
            self.only_computes &= name in _VALUES
        result = func(*args, **(kwargs or {}))
        made = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
        self._follow_masks(name, args, given, made)
        held = _NONE.union(*map(self._held_by, given))
        if held:
            self._seen |= held
            self._follow(name, args, made, held, is_view or name in _MOVES)
            if by_value and all(value in self._by_value for value in given if value in self._integers):
                for tensor in made:
                    self._by_value[tensor] = True
        if any(value in self._given for value in given):
            for tensor in made:
                self._given[tensor] = True
        return result

    def _follow(
        self, name: str, args: tuple[Any, ...], made: list[torch.Tensor], held: frozenset[int], moves: bool
    ) -> None:
        if name in _ASK_EQUAL or (name == "_to_copy" and made[0].dtype is torch.bool):  # whether it is zero
            self.asked |= _NONE.union(*map(self._held_by, args[:2]))
        if name in _EQUALITIES | _ORDERS:
            for one, other in (args[:2], args[1::-1]):
                self._compare(name, self._held_by(one), other)
            if name in _ORDERS:
                pairs = itertools.product(self._held_by(args[0]), self._held_by(args[1]))
                self.ordered |= {(min(pair), max(pair)) for pair in pairs if len(set(pair)) > 1}
            return
        if name in _BOUNDS:
            for limit in args[1:]:
                for number in self._held_by(args[0]) if type(limit) is int and args[0] in self._by_value else ():
                    self.limits.setdefault(number, set()).update((limit - 1, limit, limit + 1))
        if name in _SHIFTS:
            for number in self._held_by(args[1]):
                width = torch.iinfo(made[0].dtype).bits
                self.shifts[number] = min(width, self.shifts.get(number, width))
            held = self._held_by(args[0])
        self._numbers |= _NONE if moves else held
        for tensor in made:
            if moves or _is_integral(tensor):
                self._integers[tensor] = self._held_by(tensor) | held

    def _follow_masks(
        self, name: str, args: tuple[Any, ...], given: list[torch.Tensor], made: list[torch.Tensor]
    ) -> None:
        if not given or not all(value in self._of_masks for value in given):
            return
        masks = _NONE.union(*(self._of_masks[value] for value in given))
        if name in _BOUNDS and any(type(limit) in (int, float) and limit >= 1 for limit in args[1:2]):
            self.counted |= masks
        for tensor in made:
            self._of_masks[tensor] = masks

    def _compare(self, name: str, held: frozenset[int], other: Any) -> None:
        if isinstance(other, torch.Tensor) and other.numel() > 1:
            is_place = _is_integral(other) and not self._held_by(other)  # of a largest value, or in an order
            if other in self._given and not is_place:
                self._numbers |= held
            else:
                self._among_positions |= held
        elif type(other) is int and name in _ORDERS:
            for number in held:
                self.bounds.setdefault(number, set()).update((other - 1, other, other + 1))

    def _held_by(self, value: Any) -> frozenset[int]:
        return self._integers[value] if isinstance(value, torch.Tensor) and value in self._integers else _NONE


def _is_integral(value: torch.Tensor) -> bool:
    return not value.is_floating_point() and not value.is_complex()
