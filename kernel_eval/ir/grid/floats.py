"""Arithmetic on floating-point numbers: each operation rounds its result to its type, as a device does.

torch computes 16-bit operations in float32 and rounds once, which is the same. Functions are exact to their type's
rounding, more or less; a device's own are not, so results are compared with a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from weir.kernel_eval.ir.errors import Unsupported
from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.module import Operation
from weir.kernel_eval.ir.types import element_of

Unary = Callable[[torch.Tensor], torch.Tensor]
Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _round_half_away(x: torch.Tensor) -> torch.Tensor:
    return torch.copysign(torch.floor(x.abs() + 0.5), x)


def _cube_root(x: torch.Tensor) -> torch.Tensor:
    return torch.copysign(x.abs().double().pow(1 / 3), x.double()).to(x.dtype)


UNARY: dict[str, Unary] = {
    **{f"math.{name}": getattr(torch, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p")},
    **{f"math.{name}": getattr(torch, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")},
    **{f"math.{name}": getattr(torch, name) for name in ("tanh", "asinh", "acosh", "atanh", "sqrt", "rsqrt")},
    **{f"math.{name}": getattr(torch, name) for name in ("erf", "erfc", "floor", "ceil", "trunc")},
    "math.round": _round_half_away,
    "math.roundeven": torch.round,
    "math.cbrt": _cube_root,
    "math.absf": torch.abs,
    "arith.negf": torch.neg,
    "tt.precise_sqrt": torch.sqrt,
}
BINARY: dict[str, Binary] = {
    "arith.addf": torch.add,
    "arith.subf": torch.sub,
    "arith.mulf": torch.mul,
    "arith.divf": torch.div,
    "arith.remf": torch.fmod,
    "arith.maximumf": torch.maximum,
    "arith.minimumf": torch.minimum,
    "arith.maxnumf": torch.fmax,
    "arith.minnumf": torch.fmin,
    "tt.precise_divf": torch.div,
    "math.powf": torch.pow,
    "math.copysign": torch.copysign,
    "math.atan2": torch.atan2,
}


def check_wide(frame: Frame, operation: Operation) -> None:
    """Raise Unsupported for arithmetic on floats of 8 bits, which no device has."""
    element = element_of(frame.kind(operation))
    if str(element).startswith("f8"):
        raise Unsupported(f"{operation.name} on {element}")


def _unary(frame: Frame, operation: Operation) -> torch.Tensor:
    value = frame.tensor(operation.operands[0])
    if value.dtype == torch.uint8:
        check_wide(frame, operation)
    frame.machine.counts.flops += value.numel()
    return UNARY[operation.name](value)


def _binary(frame: Frame, operation: Operation) -> torch.Tensor:
    left, right = frame.tensors(operation)
    if left.dtype == torch.uint8:
        check_wide(frame, operation)
    result = BINARY[operation.name](left, right)
    frame.machine.counts.flops += result.numel()
    return result


def _fma(frame: Frame, operation: Operation) -> torch.Tensor:
    a, b, c = frame.tensors(operation)
    check_wide(frame, operation)
    frame.machine.counts.flops += 2 * max(a.numel(), c.numel())
    if a.dtype == torch.float64:
        return a * b + c
    if a.dtype == torch.float32:
        return (a.double() * b.double() + c.double()).float()
    return (a.float() * b.float() + c.float()).to(a.dtype)


_ORDERED = {"eq": torch.eq, "gt": torch.gt, "ge": torch.ge, "lt": torch.lt, "le": torch.le}


def _compare(frame: Frame, operation: Operation) -> torch.Tensor:
    left, right = frame.tensors(operation)
    check_wide(frame, operation)
    relation = operation.attributes["relation"]
    if relation in ("true", "false"):
        return torch.full((1,) * left.dim(), relation == "true")
    if relation == "oeq":
        return torch.eq(left, right)
    if relation == "une":
        return torch.ne(left, right)
    unordered = torch.isnan(left) | torch.isnan(right)
    if relation in ("ord", "uno"):
        return unordered if relation == "uno" else ~unordered
    if relation == "one":
        return torch.ne(left, right) & ~unordered
    if relation == "ueq":
        return torch.eq(left, right) | unordered
    return (
        _ORDERED[relation[1:]](left, right) if relation[0] == "o" else _ORDERED[relation[1:]](left, right) | unordered
    )


def _clamp(frame: Frame, operation: Operation) -> torch.Tensor:
    value, low, high = frame.tensors(operation)
    check_wide(frame, operation)
    clamped = torch.fmin(torch.fmax(value, low), high)
    frame.machine.counts.flops += 2 * clamped.numel()
    return torch.where(torch.isnan(value), math.nan, clamped) if operation.attributes["propagate"] else clamped


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(BINARY, _binary),
    "math.fma": _fma,
    "arith.cmpf": _compare,
    "tt.clampf": _clamp,
}
