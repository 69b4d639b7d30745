"""Converts the arguments of a trace back to values: tensors in given memory, numbers, dtypes, kernels of a module.

For processes that hold none of a candidate's code but its checked kernels. Storages are tensors of bytes, by their
position in the trace.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from weir.kernel_eval.ipc.trace import DEVICE, Argument, Descriptor, Many, Named, Operator, Place, Plain, places

_DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_FORMATS = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.memory_format | torch.layout)
}
_LANGUAGE = {str(value): value for value in vars(tl).values() if isinstance(value, tl.dtype)}

Storages = Mapping[int, torch.Tensor] | Sequence[torch.Tensor]


def import_kernels(source: str, folder: str) -> types.ModuleType:
    """Import the module of extracted kernels from a file, from which Triton reads a kernel's source."""
    path = f"{folder}/kernels.py"
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    module = types.ModuleType("kernels")
    module.__file__ = path
    sys.modules["kernels"] = module
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def tensor_at(place: Place, storages: Storages) -> torch.Tensor:
    """The tensor at a place."""
    dtype = _DTYPES[place.dtype]
    if 0 in place.shape:
        return torch.empty(place.shape, dtype=dtype, device=storages[place.storage].device)
    memory = storages[place.storage]
    whole = memory[: memory.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    return whole.as_strided(place.shape, place.stride, place.offset)


def end_bytes(place: Place) -> int:
    """The offset in bytes at which a tensor ends in its storage, at least 1."""
    steps = zip(place.shape, place.stride, strict=True)
    last = 0 if 0 in place.shape else 1 + sum((size - 1) * stride for size, stride in steps)
    return max(1, (place.offset + last) * _DTYPES[place.dtype].itemsize)


def operator_of(step: Operator) -> Any:
    """The torch operator that a step names. Raises ValueError if it is not one of torch's own, or if it writes to
    storages that the step does not name, on which the judge's analysis of the data flow relies."""
    namespace, name, overload = step.name.split(".")
    if namespace != "aten":
        raise ValueError(f"{step.name} is not an operator of torch itself")
    operator = getattr(getattr(torch.ops.aten, name), overload)
    named = {place.storage for place in step.results}
    if named and not _written_by(step, operator._schema.arguments) <= named:
        raise ValueError(f"{step.name} writes to memory that its record does not name")
    return operator


def is_unfilled(step: Operator) -> bool:
    """Whether an operator's results are uninitialised memory, which in a replay could contain copies of inputs."""
    return step.name.startswith(("aten.empty", "aten.new_empty"))


def _written_by(step: Operator, parameters: Any) -> set[int]:
    given = dict(zip((parameter.name for parameter in parameters), step.arguments, strict=False)) | step.keywords
    writes = {p.name for p in parameters if p.alias_info is not None and p.alias_info.is_write}
    return {place.storage for place in places([value for name, value in given.items() if name in writes])}


def value_of(value: Argument, storages: Storages, kernels: types.ModuleType | None = None) -> Any:
    """The value of an argument of an operator or, with `kernels`, of a launch. Raises ValueError for other types."""
    if isinstance(value, Place):
        return tensor_at(value, storages)
    if isinstance(value, Plain):
        return value.value
    if isinstance(value, Many):
        items = [value_of(item, storages, kernels) for item in value.items]
        return items if value.kind == "list" else tuple(items)
    if isinstance(value, Named) and value == DEVICE:
        return torch.get_default_device()
    if isinstance(value, Named) and value.kind != "kernel":
        known: dict[str, Any] = {**_DTYPES, **_FORMATS} if value.kind == "torch" else _LANGUAGE
        return known[value.name]
    if isinstance(value, Named) and kernels is not None:
        return getattr(kernels, value.name)
    if isinstance(value, Descriptor) and kernels is not None:
        base = tensor_at(value.base, storages)
        return TensorDescriptor(base, list(value.shape), list(value.stride), list(value.block_shape), value.padding)
    raise ValueError(f"an argument of kind {type(value).__name__} cannot be replayed")
