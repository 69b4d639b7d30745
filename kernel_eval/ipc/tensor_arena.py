"""Tensors in memory that a judge shares with a worker: each between guard zones, all owned by the judge.

Layout: guard, argument, guard, argument, …, guard, output, guard, … Everything but the arguments is filled with 0xFF,
which reads as NaN in every floating-point type and as -1 in integers: a kernel that reads beyond its input gets a wrong
answer, and one that writes there is detected. Invariant: only the judge's own copy decides what changed. The memory
cannot be shrunk, so that a worker cannot make the judge fault. It is the host's memory or a GPU's. Sizes are bytes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from weir.kernel_eval.ipc.messages import ArenaSpec, Items, Scalar, TensorSpec, Value

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


class Memory(Protocol):
    """Shared memory, mapped into this process."""

    device: torch.device

    def flat(self, dtype: torch.dtype, count: int, offset: int) -> torch.Tensor:
        """`count` elements from an offset in bytes, as a storage of their own; shape (count,)."""

    def close(self) -> None:
        """Release the memory as soon as no tensor uses it."""


class HostMemory:
    """Shared memory of the host."""

    device = torch.device("cpu")

    def __init__(self, fd: int, size_bytes: int, *, is_new: bool = False) -> None:
        """`is_new`: it has no pages yet, and all of them will be written."""
        self._mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED | (mmap.MAP_POPULATE if is_new else 0))

    def flat(self, dtype: torch.dtype, count: int, offset: int) -> torch.Tensor:
        """As in `Memory`."""
        return torch.frombuffer(self._mapping, dtype=dtype, count=count, offset=offset)

    def close(self) -> None:
        """Nothing to do: the mapping is released with its last tensor."""


class _Unmapped:
    """Memory that this process does not see any more."""

    device = torch.device("cpu")

    def flat(self, dtype: torch.dtype, count: int, offset: int) -> torch.Tensor:
        """There is nothing to see."""
        raise AssertionError("the memory of this arena was given up")

    def close(self) -> None:
        """Nothing to do."""


class UnsupportedValue(Exception):
    """An argument has a type that cannot be placed in an arena."""


class Arena:
    """The judge's side of the memory of one call, filled with its arguments. Raises `UnsupportedValue`."""

    def __init__(
        self,
        arguments: list[Any],
        outputs: list[torch.Tensor],
        guard_bytes: int,
        *,
        on_gpu: bool = False,
        watched: bool = False,
    ) -> None:
        """`watched`: keep a copy of the inputs, by which `damage` knows what changed."""
        self._guard_bytes = guard_bytes
        self._end = guard_bytes
        self._tensors: list[tuple[TensorSpec, torch.Tensor]] = []
        spec = self._place_items(arguments)
        self._outputs_start = self._end
        output_specs = tuple(self._place(torch.empty_like(o, memory_format=torch.contiguous_format)) for o in outputs)
        num_inputs = len(self._tensors) - len(output_specs)
        memory, self.fd, size_bytes = _on_gpu(self._end) if on_gpu else _on_host(self._end)
        self._memory: Memory = memory
        self.spec = ArenaSpec(size_bytes, spec, output_specs, on_gpu)
        self._memory.flat(torch.uint8, self._end, 0).fill_(FILL)
        for tensor_spec, tensor in self._tensors[:num_inputs]:
            flat_view(self._memory, tensor_spec).copy_(_flat(tensor))
        self._inputs = [tensor_spec for tensor_spec, _ in self._tensors[:num_inputs]]
        self._tensors = []  # what they were may be freed
        self._pristine = self._memory.flat(torch.uint8, self._outputs_start, 0).clone() if watched else None
        self._settle()

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
        """Returns (whether a guard zone of an input was overwritten, whether an input was changed)."""
        assert self._pristine is not None
        watched = self._memory.flat(torch.uint8, self._outputs_start, 0)
        if torch.equal(watched, self._pristine):
            return False, False
        changed, outside = False, watched != self._pristine
        for spec in self._inputs:
            inside = outside[spec.offset : spec.offset + num_bytes(spec)]
            changed = changed or bool(inside.any())
            inside.fill_(False)
        return bool(outside.any()), changed

    def take_outputs(self) -> list[torch.Tensor]:
        """Copies of the outputs; their memory is filled with `FILL` again."""
        taken = []
        for spec in self.spec.outputs:
            region = flat_view(self._memory, spec)
            taken.append(region.view(torch.uint8).clone().view(region.dtype).view(spec.shape))  # a boolean's byte, too
            if taken[-1].numel():
                region.view(torch.uint8).fill_(FILL)
        self._settle()
        return taken

    def _settle(self) -> None:
        """Wait until writes on a GPU have finished, since another process reads the memory next."""
        if self.spec.on_gpu:
            torch.cuda.synchronize()

    def unmap(self) -> None:
        """Give up this process's view of the host's memory, for which another process holds the descriptor."""
        assert not self.spec.on_gpu
        self._memory = _Unmapped()

    def close(self) -> None:
        """Close the descriptor and release a GPU's memory, whose tensors must not be used afterwards."""
        os.close(self.fd)
        self._memory.close()


def attach(spec: ArenaSpec, fd: int) -> Memory:
    """The worker's side: map the memory of an arena, and close the descriptor."""
    if spec.on_gpu:
        from weir.kernel_eval.gpu import shared_memory

        return shared_memory.attach(fd, spec.size_bytes)
    try:
        return HostMemory(fd, spec.size_bytes)
    finally:
        os.close(fd)


def _on_host(size_bytes: int) -> tuple[Memory, int, int]:
    fd = os.memfd_create("weir-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return HostMemory(fd, size_bytes, is_new=True), fd, size_bytes


def _on_gpu(size_bytes: int) -> tuple[Memory, int, int]:
    from weir.kernel_eval.gpu import shared_memory

    memory = shared_memory.allocate(size_bytes)
    assert memory.fd is not None
    return memory, memory.fd, memory.size_bytes


def read_value(memory: Memory, value: Value) -> Any:
    """An argument for the candidate; tensors lie in the arena, each in a storage of its own."""
    if isinstance(value, TensorSpec):
        flat = flat_view(memory, value)
        return flat.as_strided(value.shape, value.stride)
    if isinstance(value, Items):
        items = [read_value(memory, item) for item in value.items]
        return items if value.kind == "list" else tuple(items)
    return value.value


def flat_view(memory: Memory, spec: TensorSpec) -> torch.Tensor:
    """The elements from the first to the last of a tensor, as they lie in memory; shape (span,)."""
    dtype = DTYPES[spec.dtype]
    span = span_of(spec.shape, spec.stride)
    if span == 0:
        return torch.empty(0, dtype=dtype, device=memory.device)
    return memory.flat(dtype, span, spec.offset)


def tensors_among(arguments: Any) -> list[torch.Tensor]:
    """All tensors among (nested) arguments, in order."""
    if isinstance(arguments, torch.Tensor):
        return [arguments]
    if isinstance(arguments, list | tuple):
        return [tensor for argument in arguments for tensor in tensors_among(argument)]
    return []


def num_bytes(spec: TensorSpec) -> int:
    """Bytes from the first to the last element."""
    return span_of(spec.shape, spec.stride) * DTYPES[spec.dtype].itemsize


def span_of(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last one, both included, of a tensor laid out so; 0 of one without elements."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() == 0:
        return torch.empty(0, dtype=tensor.dtype)
    return tensor.as_strided((span_of(tensor.shape, tensor.stride()),), (1,), tensor.storage_offset())


def _aligned(offset: int) -> int:
    return (offset + _ALIGN - 1) // _ALIGN * _ALIGN
