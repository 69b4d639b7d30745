"""Other ones of equal values, where torch leaves open which of them is taken.

By `topk`, by `sort` unless stable, and by those that give the place of one rank (`kthvalue`, `median`) or of the
commonest value. Scores that underflow or saturate (a softmax, a sigmoid) are equal though no inputs are. Kernels take
the first of them, the last, that of its rank in a stable order, or any, as torch does.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_TOPK, _SORT = torch.ops.aten.topk.default, torch.ops.aten.sort.default
_KTH, _MODE = torch.ops.aten.kthvalue.default, torch.ops.aten.mode.default
_MEDIANS = frozenset({torch.ops.aten.median.dim, torch.ops.aten.nanmedian.dim})
_OF_ONE = _MEDIANS | {_KTH, _MODE}
OF_ANY = frozenset({_TOPK, _SORT}) | _OF_ONE

Taken = Literal["last", "first", "ranked"]
TAKEN: tuple[Taken, ...] = ("last", "first", "ranked")


class OtherTies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active, the first of equal values is taken, the last one, or the one of its rank."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self, taken: Taken) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._taken = taken

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _TOPK:
            return self._topk(*args, **(kwargs or {}))
        if func is _SORT:
            return self._sort(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if func in _OF_ONE and args[0].dim():
            return result[0], self._place(args[0], result[0], *_dimension(func, args))
        return result

    def _topk(
        self, value: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = self._sort(value, dim, largest)
        if not value.dim():
            return values, places
        return values.narrow(dim, 0, k).contiguous(), places.narrow(dim, 0, k).contiguous()

    def _sort(self, value: torch.Tensor, dim: int = -1, descending: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        if self._taken != "last" or not value.dim():
            return torch.sort(value, stable=True, dim=dim, descending=descending)
        values, places = torch.sort(value.flip(dim), stable=True, dim=dim, descending=descending)
        return values, value.shape[dim] - 1 - places

    def _place(self, given: torch.Tensor, values: torch.Tensor, dim: int, rank: int | None) -> torch.Tensor:
        """Where the values of rows lie. `rank`: of a value among all of a row, from one; None where it has none."""
        keeps = values.dim() == given.dim()
        wanted = values if keeps else values.unsqueeze(dim)
        equal = (given == wanted) | (given.isnan() & wanted.isnan())
        number = equal.cumsum(dim)
        last = number.amax(dim, keepdim=True)
        at = last if self._taken == "last" else torch.ones_like(last)
        if self._taken == "ranked" and rank is not None:
            at = (rank - (given < wanted).sum(dim, keepdim=True)).maximum(at).minimum(last)
        taken = (equal & (number == at)).to(torch.int8).argmax(dim, keepdim=True)
        return taken if keeps else taken.squeeze(dim)


def _dimension(func: Any, args: tuple[Any, ...]) -> tuple[int, int | None]:
    """The dimension along which an operator takes a value, and the rank of that, from one."""
    given: torch.Tensor = args[0]
    if func is _KTH:
        return args[2] if len(args) > 2 else -1, args[1]
    dim = args[1] if len(args) > 1 else -1
    return dim, (given.shape[dim] + 1) // 2 if func in _MEDIANS else None
