"""Maps of the tensor memory accelerator (CUtensorMap), made by the driver as Triton's own launcher asks for them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from weir.kernel_eval.gpu import cuda_driver
from weir.kernel_eval.ipc.messages import TensorMap

_BYTES, _ALIGN = 128, 64
_TO_HOST = {8: 10, 9: 8, 10: 9}  # types have other numbers in a kernel (`TMA_DTYPE_DEVICE_TO_HOST` of Triton)
_L2_128_BYTES = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_SMALL, _SMALL_UNTIL = 128 << 10, 13_010  # bytes, and the last driver with a fault in maps of so few (CUTLASS b7ecaa6)


def encode(address: int, form: TensorMap, shape: Sequence[int], strides: Sequence[int], *, nan: bool) -> bytes:
    """A map of a tensor in blocks; strides in elements. `nan`: what lies outside reads as NaN, else as zero.

    Raises `CudaDriverError`, and ValueError if the shape, the strides and the blocks do not fit together.
    """
    rank = len(form.block_size)
    if not (1 <= rank <= 5 and len(shape) == len(strides) == rank and strides[-1] == 1):
        raise ValueError(f"a descriptor of shape {tuple(shape)}, strides {tuple(strides)}, blocks {form.block_size}")
    sizes = [*reversed(shape)]
    steps = [form.elem_size * step for step in reversed(strides[:-1])]
    steps.append(sizes[-1] * (steps[-1] if steps else form.elem_size))
    buffer = ctypes.create_string_buffer(_BYTES + _ALIGN)
    at = -ctypes.addressof(buffer) % _ALIGN
    cuda_driver.call(
        "cuTensorMapEncodeTiled",
        ctypes.c_void_p(ctypes.addressof(buffer) + at),
        ctypes.c_int(_TO_HOST.get(form.elem_type, form.elem_type)),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*sizes),
        (ctypes.c_uint64 * rank)(*steps),
        (ctypes.c_uint32 * rank)(*reversed(form.block_size)),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        ctypes.c_int(0),
        ctypes.c_int(form.swizzle),
        ctypes.c_int(_L2_128_BYTES),
        ctypes.c_int(1 if nan else 0),
    )
    made = bytearray(buffer.raw[at : at + _BYTES])
    last = sum((size - 1) * step for size, step in zip(sizes, [form.elem_size, *steps], strict=False))
    if last + 1 < _SMALL and _driver_version() <= _SMALL_UNTIL:
        made[10] &= ~(1 << 5)  # bit 21 of the second word
    return bytes(made)


def _driver_version() -> int:
    version = ctypes.c_int()
    cuda_driver.call("cuDriverGetVersion", ctypes.byref(version))
    return version.value
