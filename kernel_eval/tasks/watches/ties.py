"""Other ones of equal values, where torch leaves open which of them is taken: by `topk`, and by `sort` unless stable.

Scores that underflow or saturate (a softmax, a sigmoid) are equal though no inputs are. Kernels take the first of them,
the last, or any, as torch does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_TOPK, _SORT = torch.ops.aten.topk.default, torch.ops.aten.sort.default
OF_ANY = frozenset({_TOPK, _SORT})


class OtherTies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active, the first of equal values comes first, or the last one."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self, *, last: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._last = last

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _TOPK:
            return self._topk(*args, **(kwargs or {}))
        if func is _SORT:
            return self._sort(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _topk(
        self, value: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = self._sort(value, dim, largest)
        if not value.dim():
            return values, places
        return values.narrow(dim, 0, k).contiguous(), places.narrow(dim, 0, k).contiguous()

    def _sort(self, value: torch.Tensor, dim: int = -1, descending: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        if not self._last or not value.dim():
            return torch.sort(value, stable=True, dim=dim, descending=descending)
        values, places = torch.sort(value.flip(dim), stable=True, dim=dim, descending=descending)
        return values, value.shape[dim] - 1 - places
