"""Whether a call computes NaN, which an answer of integers or booleans does not show."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Nans(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active: whether an operator gave NaN."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.occur = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        made = (value for value in tree_leaves(result) if isinstance(value, torch.Tensor) and value.is_floating_point())
        self.occur = self.occur or any(bool(value.isnan().any()) for value in made)
        return result
