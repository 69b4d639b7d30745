"""Whether a task's own code only moves data (a transpose, a concatenation, a cast), and computes nothing.

For such a task, moving data is the whole work: a candidate that has torch do it has done nothing.
"""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from weir.kernel_eval.judge.source.provenance import HELPERS, drops
from weir.kernel_eval.tasks.device_mapping import CpuForCuda
from weir.kernel_eval.tasks.reference import Reference

_known: WeakKeyDictionary[Reference, bool] = WeakKeyDictionary()


class _Computes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active, operators that compute are noted."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.any = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0]
        is_view = any(made.alias_info is not None and not made.alias_info.is_write for made in func._schema.returns)
        if not is_view and name != "detach" and (name not in HELPERS or _drops(args, result)):
            self.any = True
        return result


def only_moves(reference: Reference, model: Any, inputs: list[Any]) -> bool:
    """Whether `Model` only moves data for these inputs; found out once per task, by running it once more."""
    if reference not in _known:
        watched = _Computes()
        own = copy.deepcopy(inputs)
        with torch.no_grad(), CpuForCuda(), watched:
            model(*own)
        _known[reference] = not watched.any
    return _known[reference]


def _drops(args: tuple[Any, ...], result: Any) -> bool:
    source = next((_name(value) for value in args if isinstance(value, torch.Tensor)), None)
    return source is not None and isinstance(result, torch.Tensor) and drops(source, _name(result))


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
