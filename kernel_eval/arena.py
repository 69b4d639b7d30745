"""Tensors in memory that a judge shares with a worker: each between guard zones, all owned by the judge.

Layout: guard, argument, guard, argument, …, guard, output, guard, … Everything that is not an argument is filled with
0xFF, which reads as NaN in every floating-point type and as -1 in integers: what a kernel reads beyond its input
spoils its answer, what it writes there is seen. Invariant: only the judge's own copy decides what changed. The memory
cannot be shrunk, so a worker cannot make the judge fault. Sizes are bytes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Any

import torch

from weir.kernel_eval.worker_messages import ArenaSpec, Items, Scalar, TensorSpec, Value

FILL = 0xFF
_ALIGN = 64
_SCALARS = (bool, int, float, str, type(None))
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
}


class UnsupportedValue(Exception):
    """An argument of a kind that cannot be put into an arena."""


class Arena:
    """The judge's side: made for one call, filled with its arguments."""

    def __init__(self, arguments: list[Any], outputs: list[torch.Tensor], guard_bytes: int) -> None:
        self._guard_bytes = guard_bytes
        self._end = guard_bytes
        self._tensors: list[tuple[TensorSpec, torch.Tensor]] = []
        spec = self._place_items(arguments)
        self._outputs_start = self._end
        output_specs = tuple(self._place(torch.empty_like(o, memory_format=torch.contiguous_format)) for o in outputs)
        num_inputs = len(self._tensors) - len(output_specs)
        self.spec = ArenaSpec(self._end, spec, output_specs)
        self.fd = os.memfd_create("weir-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self._end)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._memory = mmap.mmap(self.fd, self._end)
        torch.frombuffer(self._memory, dtype=torch.uint8).fill_(FILL)
        self._tensors = self._tensors[:num_inputs]
        for tensor_spec, tensor in self._tensors:
            flat_view(self._memory, tensor_spec).copy_(_flat(tensor))
        self._pristine = self._memory[: self._outputs_start]

    def _place_items(self, values: list[Any] | tuple[Any, ...]) -> Items:
        placed = tuple(self._place_value(value) for value in values)
        return Items("tuple" if isinstance(values, tuple) else "list", placed)

    def _place_value(self, value: Any) -> Value:
        if isinstance(value, torch.Tensor):
            return self._place(value.detach())
        if isinstance(value, list | tuple):
            return self._place_items(value)
        if isinstance(value, _SCALARS):
            return Scalar(value)
        raise UnsupportedValue(
            f"an argument of type {type(value).__name__}; tensors, numbers, strings and lists are known"
        )

    def _place(self, tensor: torch.Tensor) -> TensorSpec:
        name = str(tensor.dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise UnsupportedValue(f"a tensor of {tensor.dtype}")
        spec = TensorSpec(name, tuple(tensor.shape), tuple(tensor.stride()), self._end)
        self._tensors.append((spec, tensor))
        self._end = _aligned(self._end + num_bytes(spec)) + self._guard_bytes
        return spec

    def damage(self) -> tuple[bool, bool]:
        """(a guard zone before or after an input was written to, an input was changed)."""
        now = self._memory[: self._outputs_start]
        if now == self._pristine:
            return False, False
        changed = False
        now_outside, then_outside = bytearray(now), bytearray(self._pristine)
        for spec, _ in self._tensors:
            end = spec.offset + num_bytes(spec)
            changed = changed or now[spec.offset : end] != self._pristine[spec.offset : end]
            now_outside[spec.offset : end] = then_outside[spec.offset : end] = bytes(end - spec.offset)
        return now_outside != then_outside, changed

    def take_outputs(self) -> list[torch.Tensor]:
        """Copies of what the worker wrote; the memory is poisoned again."""
        taken = []
        for spec in self.spec.outputs:
            region = flat_view(self._memory, spec)
            taken.append(region.clone().view(spec.shape))
            if taken[-1].numel():
                region.view(torch.uint8).fill_(FILL)
        return taken

    def close(self) -> None:
        """Give back the descriptor; the mapping goes with the last view of it."""
        os.close(self.fd)


def attach(spec: ArenaSpec, fd: int) -> mmap.mmap:
    """The worker's side: map the memory and close the descriptor."""
    try:
        return mmap.mmap(fd, spec.size_bytes)
    finally:
        os.close(fd)


def read_value(memory: mmap.mmap, value: Value) -> Any:
    """An argument as the candidate gets it: tensors are views of the arena, each a storage of its own."""
    if isinstance(value, TensorSpec):
        flat = flat_view(memory, value)
        return flat.as_strided(value.shape, value.stride)
    if isinstance(value, Items):
        items = [read_value(memory, item) for item in value.items]
        return items if value.kind == "list" else tuple(items)
    return value.value


def flat_view(memory: mmap.mmap, spec: TensorSpec) -> torch.Tensor:
    """The elements from the first to the last of a tensor, as they lie in memory; shape (span,)."""
    dtype = DTYPES[spec.dtype]
    span = _span(spec)
    if span == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=span, offset=spec.offset)


def tensors_among(arguments: Any) -> list[torch.Tensor]:
    """All tensors among (nested) arguments, in order."""
    if isinstance(arguments, torch.Tensor):
        return [arguments]
    if isinstance(arguments, list | tuple):
        return [tensor for argument in arguments for tensor in tensors_among(argument)]
    return []


def num_bytes(spec: TensorSpec) -> int:
    """Bytes from the first to the last element."""
    return _span(spec) * DTYPES[spec.dtype].itemsize


def _span(spec: TensorSpec) -> int:
    if 0 in spec.shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.stride, strict=True))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() == 0:
        return torch.empty(0, dtype=tensor.dtype)
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((span,), (1,), tensor.storage_offset())


def _aligned(offset: int) -> int:
    return (offset + _ALIGN - 1) // _ALIGN * _ALIGN
