"""What a task does for some draws and not for its own: it computes NaN, or counts places from the end.

An answer of integers or booleans does not show NaN, which kernels compare otherwise than torch does: which of them is
the largest, which integer it becomes. A place below zero, where torch counts from the end, is none for a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from weir.kernel_eval.tasks.watches.integer_use import PLACED_AT
from weir.kernel_eval.tasks.watches.pointwise import is_whole

# Give memory that holds anything, a part of it, or what they were given.
_COMPUTE_NOTHING = frozenset(
    """empty empty_like empty_strided new_empty new_empty_strided set_ clone copy_ _to_copy detach lift_fresh alias
    """.split()  # noqa: SIM905  # read as a text
)

Call = Callable[[list[Any]], Any]


class Oddities(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active: whether an operator gave NaN, and whether one was given a place below zero."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gives_nan = False
        self.counts_from_end = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.__name__.partition(".")[0]
        at = PLACED_AT.get(name, len(args))
        places = (value for value in tree_leaves(args[at : at + 1]) if is_whole(value) and value.numel())
        self.counts_from_end = self.counts_from_end or any(int(value.min()) < 0 for value in places)
        result = func(*args, **(kwargs or {}))
        is_view = any(made.alias_info is not None and not made.alias_info.is_write for made in func._schema.returns)
        if is_view or name in _COMPUTE_NOTHING:
            return result
        made = (value for value in tree_leaves(result) if isinstance(value, torch.Tensor) and value.is_floating_point())
        self.gives_nan = self.gives_nan or any(bool(value.isnan().any()) for value in made)
        return result


class OwnOddities:
    """What a task does for its own draw, so that it may do it for others."""

    def __init__(self, *, takes_nan: bool) -> None:
        """`takes_nan`: it asks for special values, whatever it computes for its own draw."""
        self._takes_nan = takes_nan
        self._of_own: Oddities | None = None

    def are_left(self, call: Call, own: Callable[[], list[Any]], inputs: list[Any], *, hides_nan: bool) -> bool:
        """Whether a call with other inputs does something odd that one with its own does not.

        `hides_nan`: its answer does not show that.
        """
        if self._of_own is None:
            with Oddities() as self._of_own:
                call(own())
        with Oddities() as found:
            call(inputs)
        is_new = hides_nan and found.gives_nan and not (self._takes_nan or self._of_own.gives_nan)
        return is_new or (found.counts_from_end and not self._of_own.counts_from_end)
