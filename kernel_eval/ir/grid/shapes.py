"""Operations that move elements: splat, broadcast, reshape, join, gather and so on, and arith.select."""

from __future__ import annotations

import numpy as np
import torch

from weir.kernel_eval.ir.errors import KernelFault
from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.grid.values import Affine, Value, affine_of, dense, dtype_of, expanded
from weir.kernel_eval.ir.module import Operation
from weir.kernel_eval.ir.types import shape_of


def _make_range(frame: Frame, operation: Operation) -> Affine:
    start, end = operation.attributes["start"], operation.attributes["end"]
    return Affine(np.array([start], dtype=np.int64), (1 if end - start > 1 else 0,), (end - start,))


def _splat(frame: Frame, operation: Operation) -> Value:
    kind, shape = frame.kind(operation), shape_of(frame.result_kind(operation))
    value = frame.value(operation.operands[0])
    linear = affine_of(value, kind)
    if linear is not None:
        return Affine(linear.base, (0,) * len(shape), shape)
    return dense(value, kind).view(-1, *([1] * len(shape)))


def _unsplat(frame: Frame, operation: Operation) -> Value:
    value = frame.value(operation.operands[0])
    if isinstance(value, Affine):
        return Affine(value.base, (), ())
    return dense(value, frame.kind(operation)).reshape(-1)


def _expand_dims(frame: Frame, operation: Operation) -> Value:
    axis = operation.attributes["axis"]
    value = frame.value(operation.operands[0])
    if isinstance(value, Affine):
        return Affine(
            value.base, (*value.steps[:axis], 0, *value.steps[axis:]), (*value.shape[:axis], 1, *value.shape[axis:])
        )
    return frame.tensor(operation.operands[0]).unsqueeze(axis + 1)


def _broadcast(frame: Frame, operation: Operation) -> Value:
    value = frame.value(operation.operands[0])
    if isinstance(value, Affine):
        return Affine(value.base, value.steps, shape_of(frame.result_kind(operation)))
    return value


def _reshape(frame: Frame, operation: Operation) -> Value:
    old, new = shape_of(frame.kind(operation)), shape_of(frame.result_kind(operation))
    value, keeps_order = frame.value(operation.operands[0]), not operation.attributes.get("allow_reorder")
    if old == new:
        return value
    if isinstance(value, Affine) and keeps_order:
        steps = [step for step, size in zip(value.steps, old, strict=True) if size > 1]
        if [size for size in old if size > 1] == [size for size in new if size > 1]:
            left = iter(steps)
            return Affine(value.base, tuple(next(left) if size > 1 else 0 for size in new), new)
        if not any(steps):
            return Affine(value.base, (0,) * len(new), new)
    elements = frame.tensor(operation.operands[0])
    if elements.numel() == elements.shape[0]:
        return elements.view(-1, *([1] * len(new)))
    elements = expanded(elements, old).reshape(elements.shape[0], -1)
    return (elements if keeps_order else _reordered(elements)).view(-1, *new)


def _reordered(elements: torch.Tensor) -> torch.Tensor:
    """Elements in another order, as a compiler may choose one where none is asked for; no second time undoes it."""
    return elements.roll(1, 1)


def _trans(frame: Frame, operation: Operation) -> Value:
    order = operation.attributes["order"]
    value = frame.value(operation.operands[0])
    if isinstance(value, Affine):
        return Affine(
            value.base, tuple(value.steps[axis] for axis in order), tuple(value.shape[axis] for axis in order)
        )
    return frame.tensor(operation.operands[0]).permute(0, *(axis + 1 for axis in order))


def _full(frame: Frame, operation: Operation) -> list[torch.Tensor]:
    """All operands with all elements, and the same number of programs."""
    values = [expanded(frame.tensor(number), shape_of(frame.types[number])) for number in operation.operands]
    lanes = max(value.shape[0] for value in values)
    return [value.expand(lanes, *value.shape[1:]) for value in values]


def _join(frame: Frame, operation: Operation) -> torch.Tensor:
    return torch.stack(_full(frame, operation), dim=-1)


def _cat(frame: Frame, operation: Operation) -> torch.Tensor:
    return _reordered(torch.cat(_full(frame, operation), dim=1))


def _split(frame: Frame, operation: Operation) -> tuple[torch.Tensor, torch.Tensor]:
    value = frame.tensor(operation.operands[0])
    value = value.expand(*value.shape[:-1], 2)
    return value[..., 0], value[..., 1]


def _gather(frame: Frame, operation: Operation) -> torch.Tensor:
    source, index = _full(frame, operation)
    axis = operation.attributes["axis"] + 1
    index = index.to(torch.int64)
    low, high = (int(bound) for bound in torch.aminmax(index))
    if low < 0 or high >= source.shape[axis]:
        raise KernelFault("out_of_bounds", "tt.gather takes an index outside of its tensor")
    return torch.gather(source, axis, index)


def _histogram(frame: Frame, operation: Operation) -> torch.Tensor:
    kind = frame.result_kind(operation)
    (bins,) = shape_of(kind)
    values = _full(frame, operation)
    index = values[0].to(torch.int64)
    index = index % bins  # the low bits of a value, which is all that devices look at: what is out of range counts too
    if len(values) == 2:
        index = torch.where(values[1], index, bins)
    result = torch.zeros(index.shape[0], bins + 1, dtype=torch.int64)
    result.scatter_add_(1, index, torch.ones_like(index))
    return result[:, :bins].to(dtype_of(kind))


def _select(frame: Frame, operation: Operation) -> Value:
    condition = frame.tensor(operation.operands[0])
    chosen = operation.operands[1:]
    if condition.numel() == 1:
        return frame.value(chosen[0] if bool(condition) else chosen[1])
    first, second = (frame.tensor(number) for number in chosen)
    if condition.dim() < first.dim():
        condition = condition.view(-1, *([1] * (first.dim() - 1)))
    return torch.where(condition, first, second)


HANDLERS: dict[str, Handler] = {
    "tt.make_range": _make_range,
    "tt.splat": _splat,
    "tt.unsplat": _unsplat,
    "tt.expand_dims": _expand_dims,
    "tt.broadcast": _broadcast,
    "tt.reshape": _reshape,
    "tt.trans": _trans,
    "tt.join": _join,
    "tt.cat": _cat,
    "tt.split": _split,
    "tt.gather": _gather,
    "tt.histogram": _histogram,
    "arith.select": _select,
}
