"""The parameters of a launch of compiled code: the bytes that a device gets for the arguments that a record has.

The arguments are those of the IR's function. What the compiler adds is known from the code: a tensor descriptor becomes
a map of the tensor memory accelerator, or, on devices without one, a pointer with its shape, strides and padding;
scratch memory comes last. Conversions are those of Triton's own launcher (`triton.backends.nvidia.driver`).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from weir.kernel_eval.ipc.messages import DeviceKernel, TensorMap
from weir.kernel_eval.ipc.trace import Argument, Descriptor, Launch, Place, Plain
from weir.kernel_eval.replay.device.tensor_maps import encode
from weir.kernel_eval.replay.values import offset_bytes

_FORMATS = {"fp16": "e", "f16": "e", "fp32": "f", "f32": "f", "fp64": "d", "f64": "d"}
_POINTER = "*"


def packed(
    kernel: DeviceKernel, launch: Launch, storages: Sequence[torch.Tensor], scratch: Sequence[int]
) -> list[bytes]:
    """The bytes of each parameter. `scratch`: addresses of memory for the programs.

    Raises ValueError for arguments that the code does not take.
    """
    values = list(_values(kernel, launch, storages))
    missing = len(kernel.parameters) - len(values)
    if not 0 <= missing <= len(scratch):
        raise ValueError(f"{launch.name} takes {len(kernel.parameters)} parameters, and is given {len(values)}")
    values += [(_POINTER, address) for address in scratch[:missing]]
    return [
        value if isinstance(value, bytes) else _bytes_of(kind, value, size)
        for (kind, value), size in zip(values, kernel.parameters, strict=True)
    ]


def _values(kernel: DeviceKernel, launch: Launch, storages: Sequence[torch.Tensor]) -> Iterator[tuple[str, Any]]:
    """Each parameter, as the type and the value of an argument, or as bytes."""
    types, maps, left = list(kernel.form.types), list(kernel.form.maps), list(launch.ir_arguments)
    while left:
        given = left.pop(0)
        kind = types.pop(0) if types else ""
        if not isinstance(given, Descriptor):
            yield kind, _number(kind, given, storages, launch)
        elif kind.startswith(_POINTER):
            yield kind, _address(given.base, storages)
            for number in (*given.shape, *given.stride):
                yield types.pop(0), number
            while types and types[0] == "i1":  # the second, in later releases, asks for a rounding to TF32
                types.pop(0)
                yield "i1", int(given.padding == "nan")
        elif maps:
            yield kind, _map_of(given, maps.pop(0), storages)
        else:
            raise ValueError(f"{launch.name} is given a tensor descriptor for {kind or 'nothing'}")
    if types:
        raise ValueError(f"{launch.name} is given {len(types)} arguments too few")


def _number(kind: str, given: Argument, storages: Sequence[torch.Tensor], launch: Launch) -> int | float:
    if isinstance(given, Place) and kind.startswith(_POINTER):
        return _address(given, storages)
    if isinstance(given, Plain) and isinstance(given.value, int | float) and kind and not kind.startswith(_POINTER):
        return given.value
    raise ValueError(f"{launch.name} is given {type(given).__name__} for {kind or 'nothing'}")


def _address(place: Place, storages: Sequence[torch.Tensor]) -> int:
    return storages[place.storage].data_ptr() + offset_bytes(place)


def _map_of(descriptor: Descriptor, form: TensorMap, storages: Sequence[torch.Tensor]) -> bytes:
    shape = list(descriptor.shape)
    if form.fp4_padded:
        shape[-1] *= 2
    return encode(_address(descriptor.base, storages), form, shape, descriptor.stride, nan=descriptor.padding == "nan")


def _bytes_of(kind: str, value: int | float, size: int) -> bytes:
    if kind == "bf16":  # cut off, as in Triton
        return struct.pack("<f", value)[2:]
    if kind in _FORMATS:
        return struct.pack("<" + _FORMATS[kind], _bounded(kind, float(value)))
    if not isinstance(value, int):
        raise ValueError(f"a parameter of type {kind} is given {value!r}")
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _bounded(kind: str, value: float) -> float:
    """A value that fits: a float32 may become infinite."""
    if kind in ("fp32", "f32"):
        return ctypes.c_float(value).value
    return value
