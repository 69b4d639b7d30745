"""Launches Triton's kernels without a C compiler, for Triton 3.6, in a process that cannot start programs.

That release has a C compiler build a launcher for each signature of a kernel; later ones have one launcher for all,
built before workers are forked. `install` puts a launcher in its place that calls the driver (`cuLaunchKernelEx`) by
ctypes (`gpu/kernel_launch.py`). Conversions are those of Triton 3.6.0's own launcher (`triton.backends.nvidia.driver`).
"""

from __future__ import annotations

import ctypes
import operator
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from weir.kernel_eval.gpu import cuda_driver, kernel_launch

_NAME = "__triton_launcher"  # of the modules that Triton has built
_INTEGERS = {
    "i1": ctypes.c_int8,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8,
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
}
_FLOATS = {"fp32": ctypes.c_float, "f32": ctypes.c_float, "fp64": ctypes.c_double}  # a float32 may become infinite
_HALVES = ("fp16", "bf16")
_TENSOR_MAP = "nvTmaDesc"
_TENSOR_MAP_AT = 128  # bytes from the start of the object that holds a map of the tensor memory accelerator
_DEVICE_POINTER = 3  # CU_POINTER_ATTRIBUTE_DEVICE_POINTER


def install() -> None:
    """Patch Triton in this process, if its release has launchers built; else do nothing."""
    from triton.backends.nvidia import driver

    if not hasattr(driver, "make_launcher"):
        return
    compile_module = driver.compile_module_from_src

    def make_launcher(constants: Any, signature: dict[Any, Any], descriptors: Sequence[Any] | None) -> Launcher:
        del constants
        return Launcher(list(parameter_types(signature.values(), descriptors)))

    def module_of(src: Any, name: str, **options: Any) -> Any:
        return SimpleNamespace(launch=src) if name == _NAME else compile_module(src=src, name=name, **options)

    driver.make_launcher = make_launcher
    driver.compile_module_from_src = module_of


def parameter_types(signature: Any, descriptors: Sequence[Any] | None) -> Iterator[Any]:
    """The types of a launch's arguments: a tensor descriptor becomes what Triton passes in its place.

    `descriptors` holds, for each tensor descriptor, how the kernel was lowered: with None it is a pointer.
    """
    remaining = iter(descriptors or ())
    for kind in signature:
        found = re.match(r"tensordesc<([^[>]*)\[([^]]*)\]", kind) if isinstance(kind, str) else None
        if found is None:
            yield kind
            continue
        rank = found[2].count(",") + 1
        if next(remaining, None) is None:
            yield from ("*" + found[1], *["i64"] * (2 * rank), "i1")
        else:
            yield _TENSOR_MAP
        yield from (*["i32"] * rank, *["i64"] * rank)


class Launcher:
    """Launches kernels whose arguments have these types; tuples of types are tuples of arguments."""

    def __init__(self, types: Sequence[Any]) -> None:
        self._types = types
        flat = [kind for kind in _flat(types) if kind != "constexpr"]
        self._slots = [_slot(kind) for kind in [*flat, "*scratch", "*scratch"]]
        self._places = (ctypes.c_void_p * len(self._slots))(*map(ctypes.addressof, self._slots))

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        function: int,
        cooperative: bool,
        serial: bool,
        scratch: Any,
        profile: Any,
        metadata: tuple[int, int, int],
        about: Any,
        enter: Callable[[Any], object] | None,
        leave: Callable[[Any], object] | None,
        *arguments: Any,
    ) -> None:
        """As Triton calls its own launcher. Raises `CudaDriverError`, and ValueError for a tensor of a CPU."""
        num_warps, num_ctas, shared_bytes = metadata
        if enter is not None:
            enter(about)
        values = [*_paired(self._types, arguments), ("*scratch", scratch), ("*scratch", profile)]
        for at, (kind, value) in enumerate(values):
            if kind == _TENSOR_MAP:
                self._places[at] = id(value) + _TENSOR_MAP_AT
            else:
                self._slots[at].value = _number(kind, value, at)
        x, y, z = map(operator.index, (x, y, z))
        kernel_launch.launch(
            function,
            (x, y, z),
            self._places,
            stream=stream,
            num_warps=num_warps,
            num_ctas=num_ctas,
            shared_bytes=shared_bytes,
            cooperative=cooperative,
            serial=serial,
        )
        if leave is not None:
            leave(about)


def _flat(types: Sequence[Any]) -> Iterator[str]:
    for kind in types:
        if isinstance(kind, tuple):
            yield from _flat(kind)
        else:
            yield kind


def _paired(types: Sequence[Any], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Each argument that the kernel gets, with its type; constants are compiled in."""
    for kind, value in zip(types, values, strict=True):
        if isinstance(kind, tuple):
            yield from _paired(kind, value)
        elif kind != "constexpr":
            yield kind, value


def _slot(kind: str) -> Any:
    if kind[0] == "*" or kind == _TENSOR_MAP:
        return ctypes.c_uint64()
    return ctypes.c_uint16() if kind in _HALVES else (_FLOATS.get(kind) or _INTEGERS[kind])()


def _number(kind: str, value: Any, at: int) -> Any:
    if kind[0] == "*":
        return _pointer(value, at)
    if kind in _INTEGERS:
        return operator.index(value)  # numpy's integers, too
    value = float(value)
    if kind == "fp16":
        return struct.unpack("<H", struct.pack("<e", value))[0]
    if kind == "bf16":  # cut off, as in Triton
        return struct.unpack("<I", bytes(ctypes.c_float(value)))[0] >> 16
    return value


def _pointer(value: Any, at: int) -> int:
    if value is None or isinstance(value, int):
        return value or 0
    address = int(value.data_ptr())
    if address == 0 or (isinstance(value, torch.Tensor) and value.is_cuda):
        return address
    found = ctypes.c_uint64()
    try:
        cuda_driver.call("cuPointerGetAttribute", ctypes.byref(found), _DEVICE_POINTER, ctypes.c_uint64(address))
    except cuda_driver.CudaDriverError as error:
        raise ValueError(f"Pointer argument (at {at}) cannot be accessed from Triton (cpu tensor?)") from error
    return found.value
