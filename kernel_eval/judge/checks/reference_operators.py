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

from weir.kernel_eval.ipc.tensor_arena import tensors_among
from weir.kernel_eval.ipc.trace import Operator
from weir.kernel_eval.judge.source.operator_cost import Cost, Size, cost_of, share_of_kernels
from weir.kernel_eval.judge.source.provenance import HELPERS, drops
from weir.kernel_eval.tasks.device_mapping import CpuForCuda
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.input_draws import redrawn
from weir.kernel_eval.tasks.input_variants import Draw
from weir.kernel_eval.tasks.reference import Reference

_UPSAMPLED = {f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)}
_MOVE_TOO = _UPSAMPLED | {"embedding", "one_hot", "scatter", "scatter_", "repeat_interleave", "take", "masked_select"}
_MOVES = HELPERS | _MOVE_TOO  # torch may not run the latter for a candidate, though they compute nothing

_MOST_DRAWS = 8
_MOST_LOOKED_AT = 64  # values of one output
_FEWEST_LOOKED_AT = 8
_MOST_COMPARISONS = 1 << 27
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
    """Whether `Model` only moves data for these inputs; found out once per task, by running it a few times more.

    It does if its operators only move, or if whatever they do puts each value where it was elsewhere (`tril`, the
    bytes of integers in reverse).
    """
    if reference not in _known:
        _known[reference] = not _watch(reference.fresh(model), inputs).computes or _is_permutation(reference, model)
    return _known[reference]


def _is_permutation(reference: Reference, model: Any) -> bool:
    """Whether all values of the answers that are looked at are constants or copies, each of one place of the inputs.

    For each, the places that held it for several independent draws are counted out. Integers are looked at byte by
    byte, because they may be put together from parts of others. Floats are all looked at then: few may be computed, as
    a row of a cache is.
    """
    traced: list[_Traced] = []
    try:
        for number in range(_MOST_DRAWS):
            given, outputs = _call(reference, model, number)
            traced = traced or [_Traced(output, given) for output in outputs]
            for one, output in zip(traced, outputs, strict=True):
                one.narrow(output, given)
            del outputs, given
            if not traced or not all(one.has_places for one in traced):
                return False
        if not any(one.varies for one in traced):
            return False
        given, outputs = _call(reference, model, 0)
        others = _call(reference, model, 1)[1]
        return all(_holds(given, output, other) for output, other in zip(outputs, others, strict=True))
    except (InvalidReference, UnsupportedReference, RuntimeError, ValueError):  # other shapes at each draw
        return False


def _call(reference: Reference, model: Any, number: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What a draw has that values may come from, and the answer to it."""
    inputs = redrawn(reference.inputs(number), Draw.NORMAL)
    outputs = [out for out in reference.expected(model, inputs).outputs if out.numel()]
    return [value for value in tensors_among(inputs) if value.dtype is not torch.bool and value.numel()], outputs


def _holds(given: list[torch.Tensor], output: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether inputs hold all floats of an answer but those that are the same in another draw's."""
    if not output.is_floating_point():
        return True
    values = torch.cat([output.new_empty(0), *(_units(value, output.dtype) for value in given)])
    return bool((torch.isin(output, values) | (output == other) | output.isnan()).all())


class _Traced:
    """Values of one output, with the places of the inputs that may be where they come from."""

    def __init__(self, output: torch.Tensor, inputs: list[torch.Tensor]) -> None:
        self._whole = output.is_floating_point()
        size = sum(_units(value, self._dtype(output)).numel() for value in inputs)
        count = max(_FEWEST_LOOKED_AT, min(_MOST_LOOKED_AT, _MOST_COMPARISONS // max(1, size)))
        self._at = torch.randint(_units(output, self._dtype(output)).numel(), (count,))
        self._places: list[torch.Tensor] | None = None  # of each value: the places of the inputs, by number
        self._first = torch.empty(0)
        self._constant = torch.ones(count, dtype=torch.bool, device=output.device)

    def _dtype(self, output: torch.Tensor) -> torch.dtype:
        return output.dtype if self._whole else torch.uint8

    def narrow(self, output: torch.Tensor, inputs: list[torch.Tensor]) -> None:
        """Take the answer to another draw."""
        dtype = self._dtype(output)
        values = _units(output, dtype)[self._at]
        places = torch.cat([values.new_empty(0), *(_units(value, dtype) for value in inputs)])
        if self._places is None:
            numbers = torch.int32 if places.numel() < 1 << 31 else torch.int64
            self._places = [(places == value).nonzero().squeeze(1).to(numbers) for value in values]
        else:
            left = zip(self._places, values, strict=True)
            self._places = [at[places[at] == value] if at.numel() else at for at, value in left]
        self._constant &= values == (self._first if self._first.numel() else values)
        self._first = self._first if self._first.numel() else values

    @property
    def has_places(self) -> bool:
        """Whether each value may still come from a place, or be a constant."""
        assert self._places is not None
        found = torch.tensor([at.numel() > 0 for at in self._places])
        return bool((found | self._constant.cpu()).all())

    @property
    def varies(self) -> bool:
        """Whether some value is no constant."""
        return not bool(self._constant.all())


def _units(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What an answer of this dtype may be made of: bytes of integers, or values of the same dtype."""
    if dtype is torch.uint8:
        return tensor.contiguous().reshape(-1).view(torch.uint8)
    return tensor.reshape(-1) if tensor.dtype is dtype else tensor.new_empty(0, dtype=dtype)


def hybrid_details(work: list[Operator], model: Any, inputs: list[Any]) -> dict[str, Any]:
    """What torch did of a call's work, and the part that kernels did; empty if torch computed nothing.

    The whole is what the operators of `Model` cost for the same inputs, so that needless kernels add nothing.
    """
    if not work:
        return {}
    share = share_of_kernels(work, _watch(model, inputs).cost)
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
