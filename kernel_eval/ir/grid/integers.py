"""Arithmetic on integers: wraps around in two's complement; unsigned operations work on the same bits.

What is undefined on a device (division by zero, shifts by more than the width) gives some number here, never an error.
A quotient by zero is all ones: PTX gives an unspecified value, which a kernel must not take for a zero.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.grid.values import Affine, Value, affine_of
from weir.kernel_eval.ir.module import Operation
from weir.kernel_eval.ir.types import Scalar, Type, element_of

Binary = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]

_BY_ZERO = -1


def bits_of(kind: Type) -> int:
    """The width of a type's elements."""
    element = element_of(kind)
    assert isinstance(element, Scalar)
    return element.bits


def _fits(value: Affine, bits: int) -> bool:
    return -(1 << bits - 1) <= value.low and value.high < 1 << bits - 1


def add(a: Affine, b: Affine) -> Affine:
    """The sum."""
    return Affine(a.base + b.base, tuple(map(int.__add__, a.steps, b.steps)), a.shape)


def _subtract(a: Affine, b: Affine) -> Affine:
    return Affine(a.base - b.base, tuple(map(int.__sub__, a.steps, b.steps)), a.shape)


def scale(a: Affine, factor: int) -> Affine:
    """The product with a number."""
    return Affine(a.base * factor, tuple(step * factor for step in a.steps), a.shape)


_MAX_FACTOR = 1 << 62


def _product_fits(a: Affine, b: Affine, bits: int) -> bool:
    largest = max(abs(a.low), abs(a.high)) * max(abs(b.low), abs(b.high))
    return largest < min(1 << bits - 1, _MAX_FACTOR)


def _multiply(a: Affine, b: Affine, bits: int) -> Affine | None:
    if not _product_fits(a, b, bits):
        return None
    for one, other in ((a, b), (b, a)):
        if one.uniform is not None and one.flat:
            return scale(other, one.uniform)
    return Affine(a.base * b.base, a.steps, a.shape) if a.flat and b.flat else None


def _linear(name: str, a: Affine, b: Affine, bits: int) -> Affine | None:
    """The result as Affine, if it is one and nothing wraps around."""
    if name in ("arith.addi", "arith.subi"):
        if max(abs(a.low), abs(a.high), abs(b.low), abs(b.high)) >= _MAX_FACTOR:
            return None
        result = add(a, b) if name == "arith.addi" else _subtract(a, b)
        return result if _fits(result, bits) else None
    if name == "arith.muli":
        return _multiply(a, b, bits)
    divisor = b.uniform
    if divisor is not None and divisor > 0 and a.low >= 0:
        if name in ("arith.remsi", "arith.remui"):
            return a if a.high < divisor else None
        if name in ("arith.divsi", "arith.divui") and divisor == 1:
            return a
    if name == "arith.minsi":
        return a if a.high <= b.low else b if b.high <= a.low else None
    if name == "arith.maxsi":
        return a if a.low >= b.high else b if b.low >= a.high else None
    return None


def unsigned(value: torch.Tensor, bits: int) -> torch.Tensor:
    """The unsigned values of fewer than 64 bits, as int64."""
    return value.to(torch.int64) & ((1 << bits) - 1)


def _numpy(function: Callable[..., np.ndarray]) -> Binary:
    """A function of unsigned 64-bit integers, through numpy."""

    def call(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
        left, right = (np.ascontiguousarray(x.numpy()).view(np.uint64) for x in (a, b))
        with np.errstate(all="ignore"):
            return torch.from_numpy(np.ascontiguousarray(function(left, right)).view(np.int64))

    return call


def _signed_division(a: torch.Tensor, b: torch.Tensor, rounding: str) -> torch.Tensor:
    special = (b == 0) | (b == -1)  # the smallest number divided by -1 would end the process
    quotient = torch.div(a, torch.where(special, 1, b), rounding_mode=rounding)
    return torch.where(b == 0, _BY_ZERO, torch.where(b == -1, -a, quotient))


def _divsi(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    return _signed_division(a, b, "trunc")


def _floordivsi(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    return _signed_division(a, b, "floor")


def _ceildivsi(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    return -_signed_division(-a, b, "floor")


def _remsi(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.where(b == 0, a, torch.fmod(a, torch.where((b == 0) | (b == -1), 1, b)))


def _divui(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.where(b == 0, (1 << bits) - 1, a // _nonzero(b))


def _remui(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.where(b == 0, a, a % _nonzero(b))


def _np_divui(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, ~np.uint64(0), a // _np_nonzero(b))


def _np_remui(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, a, a % _np_nonzero(b))


def _unsigned(small: Binary, large: Callable[..., np.ndarray]) -> Binary:
    """An operation on unsigned numbers: as int64 below 64 bits, else through numpy."""
    through_numpy = _numpy(large)

    def call(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
        if bits == 64:
            return through_numpy(a, b, bits)
        return small(unsigned(a, bits), unsigned(b, bits), bits).to(a.dtype)

    return call


def _nonzero(b: torch.Tensor) -> torch.Tensor:
    return torch.where(b == 0, 1, b)


def _np_nonzero(b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, np.uint64(1), b)


def _amount(b: torch.Tensor, bits: int) -> torch.Tensor:
    return b.clamp(0, bits - 1)


def _shli(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.where((b < 0) | (b >= bits), 0, a << _amount(b, bits))


def _shrui(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    if bits == 64:
        amount = _amount(b, 64)
        shifted = (a >> amount) & ~(torch.where(amount == 0, 0, -1) << (64 - torch.where(amount == 0, 1, amount)))
    else:
        shifted = (unsigned(a, bits) >> _amount(b, bits)).to(a.dtype)
    return torch.where((b < 0) | (b >= bits), 0, shifted)


def mulhiui(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    """The upper half of the product of unsigned numbers."""
    if bits < 64:
        product = unsigned(a, bits) * unsigned(b, bits)  # wraps around like its bits
        return ((product >> bits) & ((1 << bits) - 1)).to(a.dtype)
    mask = 0xFFFFFFFF
    a_low, b_low = a & mask, b & mask
    a_high, b_high = (a >> 32) & mask, (b >> 32) & mask
    low = a_low * b_low
    middle = a_high * b_low + ((low >> 32) & mask)
    other = a_low * b_high + (middle & mask)
    return a_high * b_high + ((middle >> 32) & mask) + ((other >> 32) & mask)


def mulhisi(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    """The upper half of the product of signed numbers."""
    if bits < 64:
        return ((a.to(torch.int64) * b.to(torch.int64)) >> bits).to(a.dtype)
    return mulhiui(a, b, bits) - torch.where(a < 0, b, 0) - torch.where(b < 0, a, 0)


_BINARY: dict[str, Binary] = {
    "arith.addi": lambda a, b, bits: a + b,
    "arith.subi": lambda a, b, bits: a - b,
    "arith.muli": lambda a, b, bits: a * b,
    "arith.andi": lambda a, b, bits: a & b,
    "arith.ori": lambda a, b, bits: a | b,
    "arith.xori": lambda a, b, bits: a ^ b,
    "arith.divsi": _divsi,
    "arith.floordivsi": _floordivsi,
    "arith.ceildivsi": _ceildivsi,
    "arith.remsi": _remsi,
    "arith.maxsi": lambda a, b, bits: torch.maximum(a, b),
    "arith.minsi": lambda a, b, bits: torch.minimum(a, b),
    "arith.shli": _shli,
    "arith.shrsi": lambda a, b, bits: a >> _amount(b, bits),
    "arith.shrui": _shrui,
    "arith.divui": _unsigned(_divui, _np_divui),
    "arith.remui": _unsigned(_remui, _np_remui),
    "arith.ceildivui": _unsigned(
        lambda a, b, bits: (a + _nonzero(b) - 1) // _nonzero(b),
        lambda a, b: a // _np_nonzero(b) + (a % _np_nonzero(b) != 0),
    ),
    "arith.maxui": _unsigned(lambda a, b, bits: torch.maximum(a, b), np.maximum),
    "arith.minui": _unsigned(lambda a, b, bits: torch.minimum(a, b), np.minimum),
    "tt.mulhiui": mulhiui,
}
# an i1 is kept as bool, whose arithmetic is that of one bit
_ONE_BIT: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    **dict.fromkeys(("arith.addi", "arith.subi", "arith.xori"), torch.logical_xor),
    **dict.fromkeys(("arith.muli", "arith.andi", "arith.minui", "arith.maxsi"), torch.logical_and),
    **dict.fromkeys(("arith.ori", "arith.maxui", "arith.minsi"), torch.logical_or),
    **{name: lambda a, b: a for name in ("arith.divui", "arith.divsi")},
    **{name: lambda a, b: torch.zeros_like(a) for name in ("arith.remui", "arith.remsi")},
    **{name: lambda a, b: a & ~b for name in ("arith.shli", "arith.shrui")},
    "arith.shrsi": lambda a, b: a,
}


def apply(name: str, a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    """A binary operation on tensors of integers of a width."""
    return _ONE_BIT[name](a, b) if bits == 1 else _BINARY[name](a, b, bits)


def _binary(frame: Frame, operation: Operation) -> Value:
    kind = frame.kind(operation)
    bits = bits_of(kind)
    first, second = (frame.value(operand) for operand in operation.operands)
    if bits > 1:
        a = affine_of(first, kind)
        b = None if a is None else affine_of(second, kind)
        if a is not None and b is not None:
            linear = _linear(operation.name, a, b, bits)
            if linear is not None:
                return linear
    left, right = frame.tensors(operation)
    if bits == 1 and operation.name == "arith.andi":  # masks are often true everywhere
        for one, other in ((left, right), (right, left)):
            if one.numel() == 1 and bool(one):
                return other
    return apply(operation.name, left, right, bits)


_ORDER = {
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}


def _compare(frame: Frame, operation: Operation) -> torch.Tensor:
    kind, relation = frame.kind(operation), operation.attributes["relation"]
    bits = bits_of(kind)
    if bits > 1:
        a, b = (affine_of(frame.value(operand), kind) for operand in operation.operands)
        if a is not None and b is not None:
            known = _decided(a, b, relation)
            if known is not None:
                return torch.full((1,) * (len(a.shape) + 1), known)
    left, right = frame.tensors(operation)
    if relation in ("eq", "ne"):
        return torch.eq(left, right) if relation == "eq" else torch.ne(left, right)
    if bits == 1:
        left, right = left.to(torch.int8), right.to(torch.int8)
        if relation[0] == "s":
            left, right = -left, -right
    elif relation[0] == "u":
        smallest = -(1 << bits - 1)
        left, right = left ^ smallest, right ^ smallest
    return _ORDER[relation[1:]](left, right)


def _decided(a: Affine, b: Affine, relation: str) -> bool | None:
    """The result of a comparison, if it is the same everywhere as far as ranges show."""
    if relation[0] == "u":
        if a.low < 0 or b.low < 0:
            return None
        relation = "s" + relation[1:]
    d = _subtract(a, b) if max(abs(a.low), abs(a.high), abs(b.low), abs(b.high)) < _MAX_FACTOR else None
    if d is None:
        return None
    always = {
        "slt": (d.high < 0, d.low >= 0),
        "sle": (d.high <= 0, d.low > 0),
        "sgt": (d.low > 0, d.high <= 0),
        "sge": (d.low >= 0, d.high < 0),
        "eq": (d.low == 0 == d.high, d.low > 0 or d.high < 0),
        "ne": (d.low > 0 or d.high < 0, d.low == 0 == d.high),
    }[relation]
    return True if always[0] else False if always[1] else None


def _absolute(frame: Frame, operation: Operation) -> torch.Tensor:
    return torch.abs(frame.tensor(operation.operands[0]))


def _popcount(frame: Frame, operation: Operation) -> torch.Tensor:
    value, bits = frame.tensor(operation.operands[0]), bits_of(frame.kind(operation))
    counted = torch.zeros_like(value)
    for bit in range(bits):
        counted = counted + ((value >> bit) & 1)
    return counted


def _leading_zeros(frame: Frame, operation: Operation) -> torch.Tensor:
    value, bits = frame.tensor(operation.operands[0]), bits_of(frame.kind(operation))
    found = torch.full_like(value, bits)
    for bit in range(bits):
        found = torch.where(((value >> bit) & 1) != 0, bits - 1 - bit, found)
    return found


def _trailing_zeros(frame: Frame, operation: Operation) -> torch.Tensor:
    value, bits = frame.tensor(operation.operands[0]), bits_of(frame.kind(operation))
    found = torch.full_like(value, bits)
    for bit in reversed(range(bits)):
        found = torch.where(((value >> bit) & 1) != 0, bit, found)
    return found


def _extended(frame: Frame, operation: Operation) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = frame.tensors(operation)
    bits = bits_of(frame.kind(operation))
    if operation.name == "arith.addui_extended":
        total = a + b
        smallest = -(1 << bits - 1)
        return total, (total ^ smallest) < (a ^ smallest)
    return a * b, (mulhiui if operation.name == "arith.mului_extended" else mulhisi)(a, b, bits)


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(_BINARY, _binary),
    "arith.cmpi": _compare,
    "math.absi": _absolute,
    "math.ctpop": _popcount,
    "math.ctlz": _leading_zeros,
    "math.cttz": _trailing_zeros,
    "arith.addui_extended": _extended,
    "arith.mului_extended": _extended,
    "arith.mulsi_extended": _extended,
}
