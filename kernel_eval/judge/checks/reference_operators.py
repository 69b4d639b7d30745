"""The operators of a task's own code: whether they only move data (a transpose, a cast), and what they cost.

For a task that computes nothing, moving data is the whole work: a candidate that has torch do it has done nothing.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from weir.kernel_eval.ipc.trace import Operator
from weir.kernel_eval.judge.source.operator_cost import Cost, Size, cost_of, cost_of_steps, kernel_share
from weir.kernel_eval.judge.source.provenance import HELPERS, drops
from weir.kernel_eval.tasks.device_mapping import CpuForCuda
from weir.kernel_eval.tasks.reference import Reference

_UPSAMPLED = {f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)}
_MOVE_TOO = _UPSAMPLED | {"embedding", "one_hot", "scatter", "scatter_", "repeat_interleave", "take", "masked_select"}
_MOVES = HELPERS | _MOVE_TOO  # torch may not run the latter for a candidate, though they compute nothing

_known: WeakKeyDictionary[Reference, bool] = WeakKeyDictionary()


class _Watched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active, operators that compute are noted, and the costs of all are added."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.computes = False
        self.cost = Cost()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0]
        is_view = any(made.alias_info is not None and not made.alias_info.is_write for made in func._schema.returns)
        if not is_view and name != "detach" and (name not in _MOVES or _drops(args, result)):
            self.computes = True
        if not is_view:
            read = [*args, *(kwargs or {}).values()]
            self.cost = self.cost.plus(cost_of(name, _sizes(read), _sizes([result])))
        return result


def only_moves(reference: Reference, model: Any, inputs: list[Any]) -> bool:
    """Whether `Model` only moves data for these inputs; found out once per task, by running it once more."""
    if reference not in _known:
        _known[reference] = not _watch(model, inputs).computes
    return _known[reference]


def hybrid_details(work: list[Operator], model: Any, inputs: list[Any]) -> dict[str, Any]:
    """What torch did of a call's work, and the part that kernels did; empty if torch computed nothing.

    The whole is what the operators of `Model` cost for the same inputs, so that needless kernels add nothing.
    """
    if not work:
        return {}
    share = kernel_share(cost_of_steps(work), _watch(model, inputs).cost)
    return {"kernel_share": share, "torch_operators": sorted({step.name for step in work})}


def _watch(model: Any, inputs: list[Any]) -> _Watched:
    watched = _Watched()
    own = copy.deepcopy(inputs)
    on_gpu = any(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs)
    with torch.no_grad(), contextlib.nullcontext() if on_gpu else CpuForCuda(), watched:
        model(*own)
    return watched


def _sizes(values: list[Any]) -> list[Size]:
    found = []
    for value in values:
        items = value if isinstance(value, list | tuple) else [value]
        found += [Size(tuple(t.shape), t.element_size()) for t in items if isinstance(t, torch.Tensor)]
    return found


def _drops(args: tuple[Any, ...], result: Any) -> bool:
    source = next((_name(value) for value in args if isinstance(value, torch.Tensor)), None)
    return source is not None and isinstance(result, torch.Tensor) and drops(source, _name(result))


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
