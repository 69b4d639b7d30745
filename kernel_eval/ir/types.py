"""The types of TTIR. Values of the same type compare equal."""

from __future__ import annotations

import dataclasses
import math

FLOAT_BITS = {
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "f8E4M3FN": 8,
    "f8E5M2": 8,
    "f8E4M3FNUZ": 8,
    "f8E5M2FNUZ": 8,
}
INTEGER_BITS = {"i1": 1, "i4": 4, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """A number: `i32`, `bf16`, `f8E5M2` and so on."""

    name: str

    @property
    def bits(self) -> int:
        """Its width."""
        return INTEGER_BITS.get(self.name) or FLOAT_BITS[self.name]

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point number."""
        return self.name in FLOAT_BITS

    @property
    def size(self) -> int:
        """Bytes in memory; an `i1` takes one."""
        return max(1, self.bits // 8)

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True, slots=True)
class Pointer:
    """The address of a number, of a pointer, or of a block of a tensor."""

    pointee: Type

    def __str__(self) -> str:
        return f"!tt.ptr<{self.pointee}>"


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of numbers or pointers."""

    shape: tuple[int, ...]
    element: Scalar | Pointer

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{size}x' for size in self.shape)}{self.element}>"


@dataclasses.dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor in memory that is accessed block by block."""

    block: Tensor

    def __str__(self) -> str:
        return f"!tt.tensordesc<{self.block}>"


Type = Scalar | Pointer | Tensor | Descriptor

I1, I32, I64, F32 = Scalar("i1"), Scalar("i32"), Scalar("i64"), Scalar("f32")


def element_of(kind: Type) -> Type:
    """The type of the elements of a tensor, else the type itself."""
    return kind.element if isinstance(kind, Tensor) else kind


def shape_of(kind: Type) -> tuple[int, ...]:
    """The shape of a tensor, else ()."""
    return kind.shape if isinstance(kind, Tensor) else ()


def with_element(kind: Type, element: Scalar | Pointer) -> Type:
    """The same shape with other elements."""
    return Tensor(kind.shape, element) if isinstance(kind, Tensor) else element
