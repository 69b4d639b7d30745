"""Loads, stores, and the pointers that they take."""

from __future__ import annotations

import math

import torch

from weir.kernel_eval.ir.errors import KernelFault
from weir.kernel_eval.ir.grid.casts import zeros_of
from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.grid.integers import add, scale
from weir.kernel_eval.ir.grid.values import (
    Affine,
    BlockPointer,
    BlockSource,
    Lanes,
    Value,
    affine_of,
    dtype_of,
    scalars_of,
)
from weir.kernel_eval.ir.module import EARLY, Operation
from weir.kernel_eval.ir.types import Descriptor, Pointer, Scalar, Tensor, Type, element_of, shape_of

_MAX = 1 << 61
_DESCRIPTOR_ALIGNMENT = 16  # bytes, of a descriptor's base and of all strides but the last


def _element(kind: Type) -> Scalar:
    """What a pointer, or each of a tensor of pointers, points to."""
    pointer = element_of(kind)
    assert isinstance(pointer, Pointer)
    pointee = element_of(pointer.pointee)
    assert isinstance(pointee, Scalar)
    return pointee


def _addptr(frame: Frame, operation: Operation) -> Value:
    pointer_kind, offset_kind = frame.kind(operation), frame.kind(operation, 1)
    size = _element(pointer_kind).size
    base, offset = (frame.value(operand) for operand in operation.operands)
    linear = affine_of(base, pointer_kind)
    steps = affine_of(offset, offset_kind)
    if linear is not None and steps is not None and max(abs(steps.low), abs(steps.high)) * size < _MAX:
        return add(linear, scale(steps, size))
    return frame.tensor(operation.operands[0]) + frame.tensor(operation.operands[1]).to(torch.int64) * size


def _mask(frame: Frame, mask: torch.Tensor | None) -> torch.Tensor | None:
    """None instead of a mask that is true everywhere."""
    if mask is None or (mask.numel() == 1 and bool(mask)):
        return None
    return mask


def load(
    frame: Frame,
    operation: Operation,
    addresses: Affine | torch.Tensor,
    kind: Type,
    mask: torch.Tensor | None,
    other: torch.Tensor | None,
) -> torch.Tensor:
    """Load elements of a type, for an operation; where the mask is false the result is `other`, or 0.

    Triton leaves values without `other` undefined. All of its code for NVIDIA's devices gives 0: a predicated load into
    registers that were set to 0, or a copy to shared memory that fills the rest with zeros.
    """
    element, shape = element_of(kind), shape_of(kind)
    assert isinstance(element, Scalar)
    mask = _mask(frame, mask)
    if frame.active is not None and not bool(frame.active.any()):
        return zeros_of(kind)
    frame.machine.memory.is_early = EARLY in operation.attributes
    loaded = frame.machine.memory.load(addresses, element, shape, mask, frame.active)
    frame.machine.counts.bytes_read += loaded.numel() * element.size
    if mask is None:
        return loaded
    if other is None:
        other = zeros_of(kind)
    return torch.where(mask, loaded, other)


def store(
    frame: Frame, addresses: Affine | torch.Tensor, value: torch.Tensor, kind: Type, mask: torch.Tensor | None
) -> None:
    """Store elements of a type where the mask is true."""
    element, shape = element_of(kind), shape_of(kind)
    assert isinstance(element, Scalar)
    frame.machine.counts.bytes_written += math.prod(shape) * frame.lanes * element.size
    frame.machine.memory.store(addresses, value, element, shape, _mask(frame, mask), frame.active)


def _addresses(frame: Frame, number: int) -> Affine | torch.Tensor:
    value = frame.value(number)
    linear = affine_of(value, frame.types[number])
    return linear if linear is not None else frame.tensor(number)


def _load(frame: Frame, operation: Operation) -> torch.Tensor:
    kind = frame.result_kind(operation)
    pointer = frame.value(operation.operands[0])
    if isinstance(pointer, BlockPointer):
        boundary, padding = operation.attributes["boundary"], operation.attributes["padding"]
        addresses, mask = block_of(pointer, shape_of(kind), _element(frame.kind(operation)).size, boundary)
        return load(frame, operation, addresses, kind, mask, padding_of(kind, padding) if padding else None)
    mask = frame.tensor(operation.operands[1]) if len(operation.operands) > 1 else None
    other = frame.tensor(operation.operands[2]) if len(operation.operands) > 2 else None
    return load(frame, operation, _addresses(frame, operation.operands[0]), kind, mask, other)


def _store(frame: Frame, operation: Operation) -> None:
    kind = frame.kind(operation, 1)
    pointer = frame.value(operation.operands[0])
    value = frame.tensor(operation.operands[1])
    if isinstance(pointer, BlockPointer):
        size = _element(frame.kind(operation)).size
        addresses, mask = block_of(pointer, shape_of(kind), size, operation.attributes["boundary"])
        store(frame, addresses, value, kind, mask)
        return
    mask = frame.tensor(operation.operands[2]) if len(operation.operands) > 2 else None
    store(frame, _addresses(frame, operation.operands[0]), value, kind, mask)


def padding_of(kind: Type, padding: str) -> torch.Tensor:
    """What loads find outside of a block: (1, 1, …)."""
    sizes = (1,) * (len(shape_of(kind)) + 1)
    element = element_of(kind)
    assert isinstance(element, Scalar)
    if dtype_of(kind) == torch.uint8 or not element.is_float:
        return torch.zeros(sizes, dtype=dtype_of(kind))
    return torch.full(sizes, math.nan if padding == "nan" else 0.0, dtype=dtype_of(kind))


def block_of(
    block: BlockPointer, shape: tuple[int, ...], size: int, boundary: tuple[int, ...]
) -> tuple[Affine | torch.Tensor, torch.Tensor | None]:
    """The addresses of a block's elements, and where they are inside the tensor along the axes `boundary`."""
    rank = len(shape)
    flat = Affine(scalars_of(block.base).base, (0,) * rank, shape)
    addresses: Affine | torch.Tensor = flat
    mask: torch.Tensor | None = None
    for axis in range(rank):
        positions = along(block.offsets[axis], axis, shape)
        stride = block.strides[axis]
        step = stride.uniform
        if isinstance(addresses, Affine) and step is not None:
            addresses = add(addresses, scale(positions, step * size))
        else:
            strides = torch.from_numpy(stride.base).view(-1, *([1] * rank))
            dense = addresses.tensor() if isinstance(addresses, Affine) else addresses
            addresses = dense + positions.tensor() * strides * size
        if axis in boundary:
            inside = inside_of(positions, block.shape[axis])
            mask = inside if mask is None else mask if inside is None else mask & inside
    return addresses, mask


def along(offset: Affine, axis: int, shape: tuple[int, ...]) -> Affine:
    """`offset + position along the axis`."""
    steps = tuple(1 if at == axis and size > 1 else 0 for at, size in enumerate(shape))
    return Affine(offset.base, steps, shape)


def inside_of(positions: Affine, size: Affine) -> torch.Tensor | None:
    """Where 0 <= position < size; None if everywhere."""
    if positions.low >= 0 and positions.high < size.low:
        return None
    elements = positions.tensor()
    return (elements >= 0) & (elements < torch.from_numpy(size.base).view(-1, *([1] * len(positions.shape))))


def _make_block_pointer(frame: Frame, operation: Operation) -> BlockPointer:
    rank = (len(operation.operands) - 1) // 3
    base, *numbers = operation.operands
    scalars = [scalars_of(frame.value(number)) for number in numbers]
    base_value = frame.value(base)
    assert isinstance(base_value, Affine | torch.Tensor)
    return BlockPointer(base_value, scalars[:rank], scalars[rank : 2 * rank], scalars[2 * rank :])


def _advance(frame: Frame, operation: Operation) -> BlockPointer:
    block = frame.value(operation.operands[0])
    assert isinstance(block, BlockPointer)
    steps = [scalars_of(frame.value(number)) for number in operation.operands[1:]]
    offsets = [add(offset, step) for offset, step in zip(block.offsets, steps, strict=True)]
    return BlockPointer(block.base, block.shape, block.strides, offsets)


def _make_descriptor(frame: Frame, operation: Operation) -> BlockSource:
    rank = (len(operation.operands) - 1) // 2
    base, *numbers = operation.operands
    scalars = [scalars_of(frame.value(number)) for number in numbers]
    base_value = frame.value(base)
    assert isinstance(base_value, Affine | torch.Tensor)
    source = BlockSource(base_value, scalars[:rank], scalars[rank:], operation.attributes["padding"] or "zero")
    check_described(source, _element(frame.types[base]).size, frame.active)
    return source


def check_described(source: BlockSource, size: int, active: torch.Tensor | None) -> None:
    """Raise KernelFault for a descriptor that Triton and the hardware do not take. size: bytes of an element."""
    base, *strides = (_of_active(numbers, active) for numbers in (scalars_of(source.base), *source.strides))
    if any((place % _DESCRIPTOR_ALIGNMENT).any() for place in (base, *(stride * size for stride in strides[:-1]))):
        raise KernelFault(
            "misaligned",
            "a tensor descriptor begins at no multiple of 16 bytes, or its rows do: pad the rows, or use pointers",
        )
    if (strides[-1] != 1).any():
        raise KernelFault("misaligned", "the last dimension of a tensor descriptor is not contiguous")


def _of_active(numbers: Affine, active: torch.Tensor | None) -> Lanes:
    """The numbers that active programs have."""
    return numbers.base if active is None or len(numbers.base) == 1 else numbers.base[active.numpy()]


def source_block(frame: Frame, descriptor: int, offsets: tuple[int, ...]) -> tuple[BlockPointer, BlockSource, Tensor]:
    """The block of a descriptor at offsets."""
    source, kind = frame.value(descriptor), frame.types[descriptor]
    assert isinstance(source, BlockSource) and isinstance(kind, Descriptor)
    places = [scalars_of(frame.value(number)) for number in offsets]
    return BlockPointer(source.base, source.shape, source.strides, places), source, kind.block


def _descriptor_load(frame: Frame, operation: Operation) -> torch.Tensor:
    block, source, kind = source_block(frame, operation.operands[0], operation.operands[1:])
    every = tuple(range(len(kind.shape)))
    addresses, mask = block_of(block, kind.shape, _scalar(kind).size, every)
    loaded = load(frame, operation, addresses, kind, mask, padding_of(kind, source.padding))
    loaded = loaded.expand(loaded.shape[0], *kind.shape)
    return loaded.reshape(loaded.shape[0], *shape_of(frame.result_kind(operation)))


def _scalar(kind: Tensor) -> Scalar:
    assert isinstance(kind.element, Scalar)
    return kind.element


def _descriptor_store(frame: Frame, operation: Operation) -> None:
    block, _, kind = source_block(frame, operation.operands[0], operation.operands[2:])
    addresses, mask = block_of(block, kind.shape, _scalar(kind).size, tuple(range(len(kind.shape))))
    value = frame.tensor(operation.operands[1])
    value = value.expand(value.shape[0], *shape_of(frame.kind(operation, 1))).reshape(value.shape[0], *kind.shape)
    store(frame, addresses, value, kind, mask)


def _rows(
    frame: Frame, source: BlockSource, rows: int, column: int, shape: tuple[int, ...], size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Addresses of rows by number, from a column on, and where they are inside."""
    number = frame.tensor(rows).to(torch.int64).unsqueeze(-1)  # (programs, rows, 1)
    columns = along(scalars_of(frame.value(column)), 1, shape)
    (row_stride, column_stride), (height, width) = (
        tuple(torch.from_numpy(one.base).view(-1, 1, 1) for one in pair) for pair in (source.strides, source.shape)
    )
    base = torch.from_numpy(scalars_of(source.base).base).view(-1, 1, 1)
    place = columns.tensor()
    addresses = base + (number * row_stride + place * column_stride) * size
    mask = (number >= 0) & (number < height) & (place >= 0) & (place < width)
    return addresses, mask


def _descriptor_gather(frame: Frame, operation: Operation) -> torch.Tensor:
    descriptor, rows, column = operation.operands
    source, kind = frame.value(descriptor), frame.result_kind(operation)
    assert isinstance(source, BlockSource) and isinstance(kind, Tensor)
    addresses, mask = _rows(frame, source, rows, column, kind.shape, _scalar(kind).size)
    return load(frame, operation, addresses, kind, mask, padding_of(kind, source.padding))


def _descriptor_scatter(frame: Frame, operation: Operation) -> None:
    descriptor, value, rows, column = operation.operands
    source, kind = frame.value(descriptor), frame.types[value]
    assert isinstance(source, BlockSource) and isinstance(kind, Tensor)
    addresses, mask = _rows(frame, source, rows, column, kind.shape, _scalar(kind).size)
    store(frame, addresses, frame.tensor(value), kind, mask)


HANDLERS: dict[str, Handler] = {
    "tt.addptr": _addptr,
    "tt.load": _load,
    "tt.store": _store,
    "tt.make_tensor_ptr": _make_block_pointer,
    "tt.advance": _advance,
    "tt.make_tensor_descriptor": _make_descriptor,
    "tt.descriptor_load": _descriptor_load,
    "tt.descriptor_store": _descriptor_store,
    "tt.descriptor_gather": _descriptor_gather,
    "tt.descriptor_scatter": _descriptor_scatter,
}
