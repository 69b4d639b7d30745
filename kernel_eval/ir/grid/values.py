"""Values of all programs of a chunk at once: an axis for the programs, then the axes of the type.

A value that is a tensor has 1 for each axis along which it does not vary, the programs' axis included: a splat of an
argument has one element, whatever its type's shape. Integers and addresses that are linear in the position are kept as
`Affine`, and become tensors only when something needs their elements. Floats of 8 bits are kept as their bits.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from weir.kernel_eval.ir.types import Descriptor, Pointer, Scalar, Tensor, Type, element_of, shape_of

Lanes = np.ndarray[Any, np.dtype[np.int64]]

_DTYPES = {
    "i1": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}


def dtype_of(kind: Type) -> torch.dtype:
    """How elements of a type are kept: pointers as 64-bit addresses, floats of 8 bits as their bits."""
    element = element_of(kind)
    if isinstance(element, Pointer):
        return torch.int64
    assert isinstance(element, Scalar)
    return _DTYPES.get(element.name, torch.uint8)


class Affine:
    """Integers `base + sum(step * position)`, exactly: an operation that could wrap around makes a tensor instead.

    base: (1,) or (programs,) · steps: one for each axis of the shape, 0 where the axis has one position.
    """

    __slots__ = ("base", "high", "low", "shape", "steps")

    def __init__(self, base: Lanes, steps: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self.base = base
        self.steps = steps
        self.shape = shape
        if len(base) == 1:
            self.low = self.high = int(base[0])
        else:
            self.low, self.high = int(base.min()), int(base.max())
        for step, size in zip(steps, shape, strict=True):
            if step > 0:
                self.high += step * (size - 1)
            elif step:
                self.low += step * (size - 1)

    @property
    def uniform(self) -> int | None:
        """The value, if it is the same everywhere."""
        return self.low if self.low == self.high else None

    @property
    def flat(self) -> bool:
        """Whether it varies with the program only."""
        return not any(self.steps)

    def tensor(self) -> torch.Tensor:
        """The elements, int64, with 1 for axes along which they do not vary."""
        ranks = len(self.shape)
        result = torch.from_numpy(self.base).view((-1, *([1] * ranks)))
        for axis, (step, size) in enumerate(zip(self.steps, self.shape, strict=True)):
            if step:
                along = torch.arange(0, size * step, step, dtype=torch.int64)
                result = result + along.view(*([1] * (axis + 1)), size, *([1] * (ranks - axis - 1)))
        return result


@dataclasses.dataclass(slots=True)
class BlockPointer:
    """A block of a tensor in memory. `base` counts bytes, all else elements."""

    base: Affine | torch.Tensor
    shape: list[Affine]
    strides: list[Affine]
    offsets: list[Affine]


@dataclasses.dataclass(slots=True)
class BlockSource:
    """What a tensor descriptor describes. `padding` is what loads find outside: zero or nan."""

    base: Affine | torch.Tensor
    shape: list[Affine]
    strides: list[Affine]
    padding: str


Value = Affine | torch.Tensor | BlockPointer | BlockSource


def constant(value: int, rank: int = 0) -> Affine:
    """An integer that is the same everywhere."""
    return Affine(np.array([value], dtype=np.int64), (0,) * rank, (1,) * rank)


def affine_of(value: Value, kind: Type) -> Affine | None:
    """An integer value as Affine, if it is linear in the position as far as its representation shows."""
    if isinstance(value, Affine):
        return value
    if isinstance(value, torch.Tensor) and value.numel() == value.shape[0]:
        if value.dtype in (torch.bool, torch.uint8) or value.is_floating_point():
            return None
        shape = shape_of(kind)
        return Affine(value.reshape(-1).to(torch.int64).numpy(), (0,) * len(shape), shape)
    return None


def scalars_of(value: Value) -> Affine:
    """A scalar integer of each program."""
    if isinstance(value, Affine):
        return value
    assert isinstance(value, torch.Tensor)
    return Affine(value.reshape(-1).to(torch.int64).numpy(), (), ())


def dense(value: Value, kind: Type) -> torch.Tensor:
    """A value as a tensor of its type's dtype, still with 1 for axes along which it does not vary."""
    if isinstance(value, Affine):
        made = value.tensor()
        return made if made.dtype == dtype_of(kind) else made.to(dtype_of(kind))
    assert isinstance(value, torch.Tensor)
    return value


def expanded(value: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A view with all elements of the type's shape; the programs' axis stays as it is."""
    return value.expand(value.shape[0], *shape)


def merge(mask: torch.Tensor, new: Value, old: Value, kind: Type) -> Value:
    """`new` for the programs where the mask (programs,) is true, else `old`."""
    if new is old:
        return new
    if isinstance(kind, Descriptor) or (isinstance(kind, Pointer) and isinstance(kind.pointee, Tensor)):
        return _merge_blocks(mask, new, old)
    if isinstance(new, Affine) and isinstance(old, Affine) and new.steps == old.steps:
        return Affine(np.where(mask.numpy(), new.base, old.base), new.steps, new.shape)
    rank = len(shape_of(kind))
    return torch.where(mask.view(-1, *([1] * rank)), dense(new, kind), dense(old, kind))


def _merge_blocks(mask: torch.Tensor, new: Value, old: Value) -> Value:
    def lanes(a: Affine, b: Affine) -> Affine:
        return Affine(np.where(mask.numpy(), a.base, b.base), (), ())

    def each(a: list[Affine], b: list[Affine]) -> list[Affine]:
        return [lanes(x, y) for x, y in zip(a, b, strict=True)]

    if isinstance(new, BlockPointer) and isinstance(old, BlockPointer):
        base = lanes(scalars_of(new.base), scalars_of(old.base))
        return BlockPointer(
            base, each(new.shape, old.shape), each(new.strides, old.strides), each(new.offsets, old.offsets)
        )
    assert isinstance(new, BlockSource) and isinstance(old, BlockSource)
    base = lanes(scalars_of(new.base), scalars_of(old.base))
    return BlockSource(base, each(new.shape, old.shape), each(new.strides, old.strides), new.padding)
