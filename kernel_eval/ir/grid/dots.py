"""Matrix products: in float32 whatever the inputs, in float64 for float64 and integers, whose products stay exact."""

from __future__ import annotations

import torch

from weir.kernel_eval.ir.grid.casts import decoded
from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.grid.values import dtype_of, expanded
from weir.kernel_eval.ir.module import Operation
from weir.kernel_eval.ir.types import F32, element_of, shape_of

_E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def rounded_to_tf32(value: torch.Tensor) -> torch.Tensor:
    """Float32 values with 10 bits of fraction: to nearest, ties away from zero, as `cvt.rna.tf32.f32`."""
    bits = value.contiguous().view(torch.int32)
    rounded = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    return torch.where(torch.isfinite(value), rounded, value)


def _dot(frame: Frame, operation: Operation) -> torch.Tensor:
    kinds = [frame.types[number] for number in operation.operands]
    left, right, accumulator = (
        expanded(frame.tensor(number), shape_of(kind)) for number, kind in zip(operation.operands, kinds, strict=True)
    )
    limits, counts = frame.machine.limits, frame.machine.counts
    if element_of(kinds[0]) == F32 and operation.attributes["precision"] == "tf32":
        counts.rounds_dots = True
        if limits.round_tf32 and not limits.exact_dots:
            left, right = rounded_to_tf32(left), rounded_to_tf32(right)
    left, right = decoded(left, kinds[0]), decoded(right, kinds[1])
    return product(frame, left, right, accumulator, dtype_of(kinds[2]))


def product(
    frame: Frame, left: torch.Tensor, right: torch.Tensor, accumulator: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """`left @ right + accumulator`; (programs or 1, [batch,] rows, columns)."""
    wide = not left.is_floating_point() or left.dtype == torch.float64 or frame.machine.limits.exact_dots
    compute = torch.float64 if wide else torch.float32
    lanes = max(left.shape[0], right.shape[0])
    left = left.to(compute).expand(lanes, *left.shape[1:])
    right = right.to(compute).expand(lanes, *right.shape[1:])
    frame.machine.counts.flops += 2 * left.numel() * right.shape[-1]
    if dtype == torch.float32 and compute == dtype and left.dim() == 3 and accumulator.shape[0] == lanes:
        return torch.baddbmm(accumulator, left, right)
    result = torch.matmul(left, right)
    if not dtype.is_floating_point:
        return result.to(torch.int64).to(dtype) + accumulator
    return (result + accumulator.to(compute)).to(dtype)


def _scaled(frame: Frame, value: int, scale: int | None, code: str, k_axis: int) -> torch.Tensor:
    """A side of tt.dot_scaled in float32: its elements times a power of two for each 32 along K."""
    kind = frame.types[value]
    elements = expanded(frame.tensor(value), shape_of(kind))
    if code == "e2m1":
        nibbles = torch.stack([elements & 15, (elements >> 4) & 15], dim=-1).to(torch.int64)
        if k_axis == 0:
            nibbles = nibbles.permute(0, 1, 3, 2)
        rows = elements.shape[1] * (2 if k_axis == 0 else 1)
        numbers = _E2M1[nibbles & 7] * torch.where(nibbles > 7, -1.0, 1.0)
        result = numbers.reshape(elements.shape[0], rows, -1)
    elif code in ("bf16", "fp16"):
        result = elements.float()
    else:
        names = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
        result = elements.contiguous().view(torch.uint8).view(names[code]).float()
    if scale is None:
        return result
    exponents = expanded(frame.tensor(scale), shape_of(frame.types[scale])).to(torch.int64) & 255
    factors = torch.where(exponents == 255, torch.nan, torch.exp2(exponents.double() - 127)).float()
    factors = factors.repeat_interleave(32, dim=2)  # (programs, rows, K)
    return result * (factors if k_axis == 1 else factors.transpose(1, 2))


def _dot_scaled(frame: Frame, operation: Operation) -> torch.Tensor:
    operands: list[int | None] = [None] * 5
    for at, number in zip(operation.attributes["places"], operation.operands, strict=True):
        operands[at] = number
    left, left_scale, right, right_scale, accumulator = operands
    assert left is not None and right is not None and accumulator is not None
    formats = operation.attributes["formats"]
    a = _scaled(frame, left, left_scale, formats[0], 1)
    b = _scaled(frame, right, right_scale, formats[1], 0)
    c = expanded(frame.tensor(accumulator), shape_of(frame.types[accumulator]))
    return product(frame, a, b, c, torch.float32)


HANDLERS: dict[str, Handler] = {"tt.dot": _dot, "tt.dot_scaled": _dot_scaled}
