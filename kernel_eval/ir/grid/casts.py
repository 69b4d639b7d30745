"""Conversions between types, and constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from weir.kernel_eval.ir.errors import Unsupported
from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.grid.integers import bits_of, unsigned
from weir.kernel_eval.ir.grid.values import Affine, Value, affine_of, dtype_of
from weir.kernel_eval.ir.module import Bits, Operation
from weir.kernel_eval.ir.types import Pointer, Scalar, Type, element_of, shape_of

_FP8 = {  # dtype, largest number
    "f8E4M3FN": (torch.float8_e4m3fn, 448.0),
    "f8E5M2": (torch.float8_e5m2, 57344.0),
    "f8E4M3FNUZ": (torch.float8_e4m3fnuz, 240.0),
    "f8E5M2FNUZ": (torch.float8_e5m2fnuz, 57344.0),
}
_TABLES = {
    name: torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype).float() for name, (dtype, _) in _FP8.items()
}
_INTEGERS = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


def decoded(value: torch.Tensor, kind: Type) -> torch.Tensor:
    """Float32 values of floats of 8 bits; all else as it is."""
    element = element_of(kind)
    if str(element) not in _FP8:
        return value
    return _TABLES[str(element)].index_select(0, value.reshape(-1).to(torch.int32)).view(value.shape)


def encoded(value: torch.Tensor, kind: Scalar) -> torch.Tensor:
    """Bits of 8-bit floats: to nearest, ties to even, and the largest number instead of infinity."""
    dtype, largest = _FP8[kind.name]
    return value.float().clamp(-largest, largest).to(dtype).view(torch.uint8)


def _toward_zero(value: torch.Tensor, kind: Scalar) -> torch.Tensor:
    """Floats converted to a narrower type, rounded towards zero."""
    wide = value.double() if value.dtype == torch.float64 else value.float()
    if kind.name in _FP8:
        bits = encoded(wide, kind)
        return torch.where(decoded(bits, kind).abs() > wide.abs(), bits - 1, bits)
    narrow = wide.to(dtype_of(kind))
    lower = (narrow.view(_INTEGERS[kind.bits]) - 1).view(narrow.dtype)
    too_far = (narrow.to(wide.dtype).abs() > wide.abs()) & ~torch.isinf(wide)
    return torch.where(too_far, lower, narrow)


def _convert_float(frame: Frame, operation: Operation) -> torch.Tensor:
    """arith.extf, arith.truncf and tt.fp_to_fp."""
    source, target = frame.kind(operation), element_of(frame.result_kind(operation))
    assert isinstance(target, Scalar)
    value = decoded(frame.tensor(operation.operands[0]), source)
    if operation.attributes.get("rounding") == "rtz":
        return _toward_zero(value, target)
    return encoded(value, target) if target.name in _FP8 else value.to(dtype_of(target))


def _extend(frame: Frame, operation: Operation) -> Value:
    """arith.extsi and arith.extui."""
    source, target = frame.kind(operation), frame.result_kind(operation)
    value = frame.value(operation.operands[0])
    signed = operation.name == "arith.extsi"
    if bits_of(source) > 1:
        linear = affine_of(value, source)
        if linear is not None and (signed or linear.low >= 0):
            return linear
    elements = frame.tensor(operation.operands[0])
    if bits_of(source) == 1:
        wide = elements.to(dtype_of(target))
        return -wide if signed else wide
    return elements.to(dtype_of(target)) if signed else unsigned(elements, bits_of(source)).to(dtype_of(target))


def _truncate(frame: Frame, operation: Operation) -> Value:
    target = frame.result_kind(operation)
    bits = bits_of(target)
    value = frame.value(operation.operands[0])
    if isinstance(value, Affine) and bits > 1 and -(1 << bits - 1) <= value.low and value.high < 1 << bits - 1:
        return value
    elements = frame.tensor(operation.operands[0])
    return (elements & 1) != 0 if bits == 1 else elements.to(dtype_of(target))


def _to_float(frame: Frame, operation: Operation) -> torch.Tensor:
    """arith.sitofp and arith.uitofp."""
    source, target = frame.kind(operation), frame.result_kind(operation)
    value = frame.tensor(operation.operands[0])
    bits = bits_of(source)
    if str(element_of(target)) in _FP8:
        raise Unsupported(f"{operation.name} to {element_of(target)}")
    if operation.name == "arith.sitofp":
        return (-value.to(torch.int8) if bits == 1 else value).to(dtype_of(target))
    return value.to(dtype_of(target)) if bits == 1 else of_unsigned(value, bits, dtype_of(target))


def of_unsigned(value: torch.Tensor, bits: int, dtype: torch.dtype) -> torch.Tensor:
    """The floats of unsigned integers, which are held signed."""
    if bits < 64:
        return unsigned(value, bits).to(dtype)
    wide = np.ascontiguousarray(value.numpy()).view(np.uint64)
    kinds = {torch.float64: np.float64, torch.float32: np.float32}
    return torch.from_numpy(wide.astype(kinds.get(dtype, np.float32))).to(dtype)


def _to_integer(frame: Frame, operation: Operation) -> torch.Tensor:
    """arith.fptosi and arith.fptoui: towards zero."""
    source, target = frame.kind(operation), frame.result_kind(operation)
    value = decoded(frame.tensor(operation.operands[0]), source).double()
    bits = bits_of(target)
    if bits == 1:
        return value != 0
    # conversions to fewer than 32 bits go through 32 bits, of which the lower ones are kept
    whole = saturated(torch.trunc(value), max(bits, 32), is_signed=operation.name == "arith.fptosi")
    return whole.to(dtype_of(target))


def saturated(whole: torch.Tensor, bits: int, *, is_signed: bool) -> torch.Tensor:
    """Whole numbers in float64 as integers of 32 or 64 bits, held as int64, as `cvt` of the PTX ISA makes them.

    What lies beyond the range is its end; NaN is 0 in 32 bits, and the highest bit alone in 64.
    """
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    is_upper = (whole >= 2.0**63) if bits == 64 and not is_signed else torch.zeros_like(whole, dtype=torch.bool)
    held = torch.where(is_upper, whole - 2.0**64, whole)  # bits of the upper half are those of numbers below zero
    inside = (whole > float(least)) & (whole < float(most))
    found = torch.where(inside, held, 0.0).to(torch.int64)
    found = torch.where(whole >= float(most), most if most < 1 << 63 else -1, found)
    found = torch.where(whole <= float(least), least, found)
    return torch.where(whole.isnan(), 0 if bits < 64 else -(1 << 63), found)


def _bitcast(frame: Frame, operation: Operation) -> Value:
    target = frame.result_kind(operation)
    value, element = frame.value(operation.operands[0]), element_of(target)
    if isinstance(element, Pointer) or (
        isinstance(value, Affine) and isinstance(element, Scalar) and not element.is_float
    ):
        return value
    elements = frame.tensor(operation.operands[0])
    if elements.dtype == torch.bool:
        return elements
    return elements.contiguous().view(dtype_of(target))


def _address(frame: Frame, operation: Operation) -> Value:
    """tt.ptr_to_int: the address in the launch's own space, which has the alignment of the real one."""
    frame.machine.counts.reads_addresses = True
    return frame.value(operation.operands[0])


def tensor_of(value: Any, kind: Type) -> torch.Tensor:
    """The elements of a constant: one for all, a list, or bytes; (1, *axes)."""
    shape, element = shape_of(kind), element_of(kind)
    assert isinstance(element, Scalar)
    dtype = dtype_of(kind)
    if isinstance(value, bytes):
        return torch.frombuffer(bytearray(value), dtype=dtype).view(1, *shape)
    values = value if isinstance(value, list) else [value]
    sizes = shape if isinstance(value, list) else (1,) * len(shape)
    if element.name in _FP8:
        codes = [int(one) if isinstance(one, Bits) else int(encoded(torch.tensor([one]), element)) for one in values]
        return torch.tensor(codes, dtype=torch.uint8).view(1, *sizes)
    if any(isinstance(one, Bits) for one in values):
        return torch.cat([_of_literal(one, element) for one in values]).view(1, *sizes)
    return torch.tensor(values, dtype=torch.float64 if element.is_float else torch.int64).to(dtype).view(1, *sizes)


def _of_literal(value: Any, element: Scalar) -> torch.Tensor:
    if not isinstance(value, Bits):
        return torch.tensor([value], dtype=torch.float64).to(dtype_of(element))
    bits = value - (1 << element.bits) if value >> (element.bits - 1) else int(value)
    return torch.tensor([bits], dtype=_INTEGERS[element.bits]).view(dtype_of(element))


def _constant(frame: Frame, operation: Operation) -> Value:
    kind, value = frame.result_kind(operation), operation.attributes["value"]
    element, shape = element_of(kind), shape_of(kind)
    assert isinstance(element, Scalar)
    if isinstance(value, int) and not element.is_float and element.bits > 1:
        return Affine(np.array([value], dtype=np.int64), (0,) * len(shape), shape)
    return tensor_of(value, kind)


def zeros_of(kind: Type) -> torch.Tensor:
    """(1, 1, …)."""
    return torch.zeros((1,) * (len(shape_of(kind)) + 1), dtype=dtype_of(kind))


def _poison(frame: Frame, operation: Operation) -> torch.Tensor:
    kind = frame.result_kind(operation)
    if not isinstance(element_of(kind), Scalar):
        raise Unsupported(f"{operation.name} of a pointer")
    return zeros_of(kind)


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("arith.extf", "arith.truncf", "tt.fp_to_fp"), _convert_float),
    **dict.fromkeys(("arith.extsi", "arith.extui"), _extend),
    **dict.fromkeys(("arith.sitofp", "arith.uitofp"), _to_float),
    **dict.fromkeys(("arith.fptosi", "arith.fptoui"), _to_integer),
    **dict.fromkeys(("arith.bitcast", "tt.bitcast"), _bitcast),
    "arith.trunci": _truncate,
    "arith.constant": _constant,
    "tt.ptr_to_int": _address,
    "ub.poison": _poison,
}
