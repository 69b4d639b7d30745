"""Whether a call computes NaN, which an answer of integers or booleans does not show."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Give memory that holds anything, a part of it, or what they were given.
_COMPUTE_NOTHING = frozenset(
    """empty empty_like empty_strided new_empty new_empty_strided set_ clone copy_ _to_copy detach lift_fresh alias
    """.split()  # noqa: SIM905  # read as a text
)


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
        is_view = any(made.alias_info is not None and not made.alias_info.is_write for made in func._schema.returns)
        if is_view or func.__name__.partition(".")[0] in _COMPUTE_NOTHING:
            return result
        made = (value for value in tree_leaves(result) if isinstance(value, torch.Tensor) and value.is_floating_point())
        self.occur = self.occur or any(bool(value.isnan().any()) for value in made)
        return result
