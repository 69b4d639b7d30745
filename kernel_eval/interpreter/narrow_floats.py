"""Adds bfloat16 and 8-bit floats to Triton's interpreter, which by itself computes with their bits as integers.

With this patch such values are float32 arrays whose elements are values of the narrow type: decoded at loads, rounded
(to nearest, ties to even) whenever a value is made, encoded at stores. So an operation computes in float32 and rounds
once, as the hardware does; only a sum along an axis rounds once at its end instead of at each step. Conversions to
8-bit floats saturate, as Triton's do. Atomics on these types, and formats that NVIDIA's devices do not have, raise
`NotImplementedError`, which is judged unsupported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

_FP8 = {tl.float8e4nv: (torch.float8_e4m3fn, 448.0), tl.float8e5: (torch.float8_e5m2, 57344.0)}
_BITS = {tl.bfloat16: np.uint16, tl.float8e4nv: np.uint8, tl.float8e5: np.uint8}
_FOREIGN = frozenset({tl.float8e4b15, tl.float8e4b8, tl.float8e5b16})
_TABLES = {
    kind: torch.arange(256, dtype=torch.int32).to(torch.uint8).view(fp8).float().numpy()
    for kind, (fp8, _) in _FP8.items()
}


def encode(values: Any, kind: Any) -> Any:
    """The bits of float32 values in a narrow type, rounded to nearest even; of the same shape."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    if kind == tl.bfloat16:
        bits = values.view(np.uint32)
        rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16).astype(np.uint16)
        return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)
    fp8, largest = _FP8[kind]
    return torch.from_numpy(values).clamp(-largest, largest).to(fp8).view(torch.uint8).numpy()


def decode(bits: Any, kind: Any) -> Any:
    """The float32 values of bits of a narrow type; of the same shape."""
    if kind == tl.bfloat16:
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return _TABLES[kind][bits]


def is_narrow(dtype: Any) -> bool:
    """Whether values of this type are kept as float32. False for pointers to them."""
    return not isinstance(dtype.scalar, tl.pointer_type) and dtype.scalar in _BITS


def install() -> None:
    """Patch the interpreter of this process. Call it once."""
    interpreter._get_np_dtype = _numpy_dtype
    interpreter._validate_np_data_size = _fits
    interpreter.TensorHandle.__post_init__ = _check_and_round
    for method in _METHODS:
        setattr(interpreter.InterpreterBuilder, method.__name__, method)
    for name, kind in (("bf16", tl.bfloat16), ("fp8e4nv", tl.float8e4nv), ("fp8e5", tl.float8e5)):
        setattr(interpreter.InterpreterBuilder, f"get_{name}", _constant(kind))


_original_numpy_dtype = interpreter._get_np_dtype
_original_fits = interpreter._validate_np_data_size
_Builder = interpreter.InterpreterBuilder
_load, _store = _Builder.create_masked_load, _Builder.create_masked_store
_cast, _fp_to_fp, _bitcast = _Builder.cast_impl, _Builder.create_fp_to_fp, _Builder.create_bitcast
_fabs, _dot, _atomic_rmw = _Builder.create_fabs, _Builder.create_dot, _Builder.create_atomic_rmw
_atomic_cas = _Builder.create_atomic_cas
_Handle = interpreter.TensorHandle


def _numpy_dtype(dtype: Any) -> Any:
    if not isinstance(dtype.scalar, tl.pointer_type) and dtype.scalar in _FOREIGN:
        raise NotImplementedError(f"{dtype.scalar} is no type of an NVIDIA device, or not of this target")
    return np.dtype(np.float32) if is_narrow(dtype) else _original_numpy_dtype(dtype)


def _fits(array: Any, dtype: Any) -> bool:
    return array.itemsize <= 4 if is_narrow(dtype) else bool(_original_fits(array, dtype))


def _check_and_round(handle: Any) -> None:
    if not interpreter._validate_np_data_size(handle.data, handle.dtype):
        raise ValueError(f"values of {handle.data.dtype} do not fit the type {handle.dtype}")
    if is_narrow(handle.dtype) and handle.data.dtype == np.float32:
        kind = handle.dtype.scalar
        handle.data = decode(encode(handle.data, kind), kind)


def _constant(kind: Any) -> Any:
    return lambda builder, value: _Handle(np.array([value], dtype=np.float32), kind)


def create_masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *hints: Any, **named_hints: Any) -> Any:
    """The interpreter's own, extended to narrow types through their bits."""
    kind = ptrs.get_element_ty()
    if not is_narrow(kind):
        return _load(self, ptrs, mask, other, *hints, **named_hints)
    bits = _BITS[kind]
    default = np.zeros(ptrs.data.shape, dtype=bits) if other is None else encode(other.data, kind)
    default = np.ascontiguousarray(np.broadcast_to(default, ptrs.data.shape))
    loaded = interpreter._interpreter.load(ptrs.data, mask.data, default, np.dtype(bits))
    return _Handle(decode(loaded, kind), kind)


def create_masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *hints: Any) -> Any:
    """The interpreter's own, extended to narrow types through their bits."""
    kind = ptrs.get_element_ty()
    if not is_narrow(kind):
        return _store(self, ptrs, value, mask, *hints)
    return interpreter._interpreter.store(ptrs.data, np.ascontiguousarray(encode(value.data, kind)), mask.data)


def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
    """Casts between narrow types and others, through float32."""
    if is_narrow(src.dtype) or is_narrow(dst_type):
        return _Handle(src.data.astype(_numpy_dtype(dst_type)), dst_type.scalar)
    return _cast(self, src, dst_type)


def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
    """Convert with a rounding mode. Raises NotImplementedError for a narrow type and any mode but nearest even."""
    if not (is_narrow(src.dtype) or is_narrow(dst_type)):
        return _fp_to_fp(self, src, dst_type, rounding_mode)
    if rounding_mode == interpreter._ir.ROUNDING_MODE.RTZ:
        raise NotImplementedError(f"conversion to {dst_type.scalar} that rounds towards zero")
    return cast_impl(self, src, dst_type)


def create_bitcast(self: Any, src: Any, dst_type: Any) -> Any:
    """Bitcasts; narrow values are encoded and decoded for them."""
    data = encode(src.data, src.dtype.scalar) if is_narrow(src.dtype) else src.data
    if is_narrow(dst_type):
        return _Handle(decode(data.view(_BITS[dst_type.scalar]), dst_type.scalar), dst_type.scalar)
    return _Handle(data.view(_numpy_dtype(dst_type)), dst_type.scalar)


def create_fabs(self: Any, arg: Any) -> Any:
    """Absolute values of narrow types, without the bit mask that the interpreter uses."""
    return _Handle(np.abs(arg.data), arg.dtype.scalar) if is_narrow(arg.dtype) else _fabs(self, arg)


def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    """Matrix products; narrow operands multiply exactly in float32."""
    if not (is_narrow(a.dtype) or is_narrow(b.dtype)):
        return _dot(self, a, b, d, input_precision, max_num_imprecise_acc)
    product = np.matmul(a.data.astype(np.float32), b.data.astype(np.float32))
    return _Handle((product + d.data).astype(d.data.dtype), d.dtype.scalar)


def create_atomic_rmw(self: Any, rmw_op: Any, ptr: Any, val: Any, *rest: Any) -> Any:
    """Raises NotImplementedError for narrow types: the interpreter's own would add their bits."""
    if is_narrow(val.dtype):
        raise NotImplementedError(f"atomics on {val.dtype.scalar}")
    return _atomic_rmw(self, rmw_op, ptr, val, *rest)


def create_atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, *rest: Any) -> Any:
    """Raises NotImplementedError for narrow types."""
    if is_narrow(val.dtype):
        raise NotImplementedError(f"atomics on {val.dtype.scalar}")
    return _atomic_cas(self, ptr, cmp, val, *rest)


# the interpreter binds `cast_impl` late and everything else by name, so that replacing methods is enough
_METHODS = (
    *(create_masked_load, create_masked_store, cast_impl, create_fp_to_fp, create_bitcast),
    *(create_fabs, create_dot, create_atomic_rmw, create_atomic_cas),
)
