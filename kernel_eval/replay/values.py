"""Converts the arguments of torch operators in a trace back to values: tensors in given memory, numbers, dtypes.

For processes that hold none of a candidate's code but its kernels. Storages are tensors of bytes, by their position in
the trace. Never imports Triton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from weir.kernel_eval.ipc.trace import DEVICE, Argument, Many, Named, Operator, Place, Plain, places

_DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_FORMATS = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.memory_format | torch.layout)
}

Storages = Mapping[int, torch.Tensor] | Sequence[torch.Tensor]


def tensor_at(place: Place, storages: Storages) -> torch.Tensor:
    """The tensor at a place."""
    dtype = _DTYPES[place.dtype]
    if 0 in place.shape:
        return torch.empty(place.shape, dtype=dtype, device=storages[place.storage].device)
    memory = storages[place.storage]
    whole = memory[: memory.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    return whole.as_strided(place.shape, place.stride, whole.storage_offset() + place.offset)


def offset_bytes(place: Place) -> int:
    """The offset in bytes at which a tensor begins in its storage."""
    return place.offset * _DTYPES[place.dtype].itemsize


def operator_of(step: Operator) -> Any:
    """The torch operator that a step names.

    Raises ValueError if it is not one of torch's own, if it writes to tensors other than those that the step names as
    its results, or if it is given a tensor where it takes a number: the judge's analysis of the data flow relies on it.
    """
    namespace, name, overload = step.name.split(".")
    if namespace != "aten":
        raise ValueError(f"{step.name} is not an operator of torch itself")
    operator = getattr(getattr(torch.ops.aten, name), overload)
    for parameter, given in _bound(step, operator._schema.arguments):
        if places([given]) and "Tensor" not in str(parameter.type):
            raise ValueError(f"{step.name} is given a tensor for {parameter.name}")
    named = {place.storage for place in step.results}
    written = _written_by(step, operator._schema.arguments)
    storages = {place.storage for place in written}
    if named and not storages <= named:
        raise ValueError(f"{step.name} writes to memory that its record does not name")
    if any(place.storage in storages and place not in written for place in step.results):
        raise ValueError(f"{step.name} writes to a tensor of another form than its record says")
    return operator


def is_unfilled(step: Operator) -> bool:
    """Whether an operator's results are uninitialised memory, which in a replay could contain copies of inputs."""
    return step.name.startswith(("aten.empty", "aten.new_empty"))


def _written_by(step: Operator, parameters: Any) -> list[Place]:
    bound = _bound(step, parameters)
    return places([given for p, given in bound if p.alias_info is not None and p.alias_info.is_write])


def _bound(step: Operator, parameters: Any) -> list[tuple[Any, Argument]]:
    """The parameters of an operator that a step gives, each with what it gives."""
    given = dict(zip((parameter.name for parameter in parameters), step.arguments, strict=False)) | step.keywords
    return [(parameter, given[parameter.name]) for parameter in parameters if parameter.name in given]


def value_of(value: Argument, storages: Storages) -> Any:
    """The value of an argument of an operator. Raises ValueError for types that operators do not take."""
    if isinstance(value, Place):
        return tensor_at(value, storages)
    if isinstance(value, Plain):
        return value.value
    if isinstance(value, Many):
        items = [value_of(item, storages) for item in value.items]
        return items if value.kind == "list" else tuple(items)
    if isinstance(value, Named) and value == DEVICE:
        return torch.get_default_device()
    if isinstance(value, Named) and value.kind == "torch":
        known: dict[str, Any] = {**_DTYPES, **_FORMATS}
        return known[value.name]
    raise ValueError(f"an argument of kind {type(value).__name__} cannot be replayed")
