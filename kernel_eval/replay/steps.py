"""The parts of a replay that are the same on a CPU and on a GPU: storages, torch operators, outputs."""

from __future__ import annotations

from typing import Any

import torch

from weir.kernel_eval.ipc import tensor_arena, unwritten
from weir.kernel_eval.ipc.messages import ArenaSpec, TensorSpec
from weir.kernel_eval.ipc.trace import Operator, Place, Storage, Trace, places
from weir.kernel_eval.replay.values import is_unfilled, operator_of, tensor_at, value_of

Left = dict[int, torch.Tensor]  # by piece of the state: its bytes, as calls in succession left them


def fresh_storages(
    trace: Trace, memory: tensor_arena.Memory, spec: ArenaSpec, number: int = 0, left: Left | None = None
) -> list[torch.Tensor]:
    """One tensor of bytes for each storage of a trace; inputs and state are copied, the others as `unwritten` memory.

    `number`: that of the call. `left`: state that differs from the arena's.
    Raises ValueError if a trace names inputs or state that it was not given, or more memory than this process has.
    """
    given = given_to(spec)
    storages = []
    for storage in trace.storages:
        given_here = given[storage.kind][storage.index] if storage.kind in given else None
        flat = None if given_here is None else tensor_arena.flat_view(memory, given_here)
        if flat is not None and flat.numel():
            content = left_or(flat.clone().view(torch.uint8), storage, left)
        else:
            content = torch.empty(storage.size_bytes, dtype=torch.uint8, device=memory.device)
            content = left_or(unwritten.fill(content, number), storage, left)
        storages.append(content)
    return storages


def left_or(content: torch.Tensor, storage: Storage, left: Left | None) -> torch.Tensor:
    """A copy of what earlier calls left in a storage, or else the content that it is given."""
    found = left.get(storage.index) if left and storage.kind == "state" else None
    return content if found is None else found.clone()


def given_to(spec: ArenaSpec) -> dict[str, list[TensorSpec]]:
    """Where the inputs and the state lie in an arena."""
    return {"input": _specs(spec.arguments.items[0]), "state": _specs(spec.arguments.items[1])}


def run_operator(step: Operator, storages: list[torch.Tensor]) -> list[tuple[Place, torch.Tensor]]:
    """Run one operator. Returns the tensors that it made, with the places where the trace has them.

    Empty for an operator that works in place, and for one that leaves its result unfilled: that memory stays as
    `fresh_storages` filled it. Raises ValueError for operators that a replay refuses, and for results of another form
    than the trace says: to copy them there would be a conversion that no step shows.
    """
    if is_unfilled(step):
        return []
    function = operator_of(step)
    arguments = [value_of(value, storages) for value in step.arguments]
    keywords = {name: value_of(value, storages) for name, value in step.keywords.items()}
    if any(parameter.name == "device" for parameter in function._schema.arguments):
        keywords["device"] = keywords.get("device") or torch.get_default_device()  # a record is that of a host
    result = function(*arguments, **keywords)
    if any(a.alias_info is not None and a.alias_info.is_write for a in function._schema.arguments):
        return []
    made = [result] if isinstance(result, torch.Tensor) else [r for r in result if isinstance(r, torch.Tensor)]
    for place, tensor in zip(step.results, made, strict=True):
        if _form(place) != (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)):
            raise ValueError(f"{step.name} made a tensor of another form than its record says")
    return list(zip(step.results, made, strict=True))


def check_narrowing(step: Operator, storages: list[torch.Tensor]) -> None:
    """Raises ValueError if an operator casts integers that do not fit to int32, which takes a remainder."""
    if not any(place.dtype == "int32" for place in step.results):
        return
    for place in places([*step.arguments, *step.keywords.values()]):
        if place.dtype == "int64" and 0 not in place.shape:
            least, most = (int(end) for end in torch.aminmax(tensor_at(place, storages)))
            if not -(2**31) <= least <= most < 2**31:
                raise ValueError(f"{step.name} casts integers to int32, which does not hold them: let a kernel do that")


def write_outputs(trace: Trace, storages: list[torch.Tensor], memory: tensor_arena.Memory, spec: ArenaSpec) -> None:
    """Copy the outputs of a trace to the arena. Raises ValueError for an output of another form than the arena's."""
    for output, place in zip(trace.outputs, spec.outputs, strict=True):
        assert isinstance(output, Place)
        if _form(output) != _form(place):
            raise ValueError(f"the record's output is {_form(output)}, and the answer was to be {_form(place)}")
        if 0 not in place.shape:
            written, made = tensor_arena.flat_view(memory, place).view(place.shape), tensor_at(output, storages)
            if made.dtype is torch.bool:  # as it lies, so that a byte other than 0 and 1 is seen
                written, made = written.view(torch.uint8), made.view(torch.uint8)
            written.copy_(made)


def changed(
    trace: Trace, storages: list[torch.Tensor], memory: tensor_arena.Memory, spec: ArenaSpec, left: Left
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The inputs whose contents differ from the arena's now, by number, and the pieces of the state that do.

    `left`: takes the latter's contents.
    """
    given = given_to(spec)
    inputs: list[int] = []
    state: list[int] = []
    for storage, now in zip(trace.storages, storages, strict=True):
        if storage.kind in given:
            before = tensor_arena.flat_view(memory, given[storage.kind][storage.index])
            is_other = bool(before.numel()) and not torch.equal(before.view(torch.uint8), now)
            if storage.kind == "state":
                left.pop(storage.index, None)
            if is_other and storage.kind == "state":
                left[storage.index] = now
                state.append(storage.index)
            elif is_other:
                inputs.append(storage.index)
    return tuple(inputs), tuple(state)


def _form(place: Place | TensorSpec) -> tuple[str, tuple[int, ...]]:
    return place.dtype, tuple(place.shape)


def _specs(value: Any) -> list[TensorSpec]:
    if isinstance(value, TensorSpec):
        return [value]
    return [spec for item in getattr(value, "items", ()) for spec in _specs(item)]
