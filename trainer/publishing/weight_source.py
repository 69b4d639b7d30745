"""The tensors of a version's folder, in buckets that fit one message to an engine.

Invariant: the bytes are those of the committed folder; they are read through the page cache, which holds what a round
has just written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import torch
import xxhash
from safetensors import SafetensorError, safe_open

from weir.engine.transfer.bucket import FlattenedTensorMetadata, laid_out, shared_bytes, split
from weir.trainer.errors import PublishFailed

_kept: list[torch.Tensor] = []  # two buckets at most
Send = Callable[[torch.Tensor, Sequence[FlattenedTensorMetadata], bool], Awaitable[None]]


class WeightSource:
    """A version's tensors; to be used as a context."""

    def __init__(self, folder: Path, bucket_bytes: int) -> None:
        """Map the folder's files. Raises `PublishFailed` where one cannot be read."""
        self.folder = folder
        self.bucket_bytes = bucket_bytes
        self._open = ExitStack()
        self._files: dict[str, Any] = {}  # by the names of the tensors in them
        listed: list[FlattenedTensorMetadata] = []
        try:
            for path in sorted(folder.glob("*.safetensors")):
                file = self._open.enter_context(safe_open(str(path), framework="pt", device="cpu"))
                for name in file.keys():  # noqa: SIM118 - safe_open is no mapping
                    self._files[name] = file
                    tensor = file.get_tensor(name)
                    listed += laid_out([(name, tensor.dtype, tensor.shape)])
        except (SafetensorError, OSError) as error:
            self.close()
            raise PublishFailed(f"cannot read the weights in {folder}: {error}; publish another version") from error
        self.buckets = list(_grouped(listed, bucket_bytes))
        self.held_as: frozenset[str] = frozenset()  # the types that engines hold the tensors in, by torch's names
        self._sums: dict[str, dict[str, str]] = {}  # by type and name
        self._slots: list[torch.Tensor] = []  # in shared memory
        self.num_sent = 0  # bytes that have left this process, as senders count them

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the files."""
        self._open.close()

    @property
    def names(self) -> list[str]:
        """Of all tensors."""
        return list(self._files)

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor of the folder; its memory is the file's."""
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        return tensor

    def checksums(self) -> dict[str, dict[str, str]]:
        """xxh3-64 of every tensor's bytes in each of the types of `held_as`, as engines report them, by type and name.

        Those of tensors that have been in a bucket are known already.
        """
        for name in self._files:
            self._add_sums(name, self.tensor(name))
        return self._sums

    def _add_sums(self, name: str, tensor: torch.Tensor) -> None:
        for dtype in self.held_as:
            sums = self._sums.setdefault(dtype, {})
            if name not in sums:
                held = tensor.to(getattr(torch, dtype)).contiguous().flatten().view(torch.uint8)
                sums[name] = xxhash.xxh3_64_hexdigest(held.numpy().data)

    async def each_bucket(self, send: Send) -> None:
        """Fill one bucket in shared memory while `send` has the other; `send` also learns which is the last."""
        largest = max((bucket[-1].end_idx for bucket in self.buckets), default=0)
        self._slots = slots = await asyncio.to_thread(lambda: [_slot(largest) for _ in self.buckets[:2]])
        sending: asyncio.Future[None] | None = None
        try:
            for number, entries in enumerate(self.buckets):
                flat = slots[number % 2][: entries[-1].end_idx]
                await asyncio.to_thread(self._fill, flat, entries)
                if sending is not None:
                    await sending
                sending = asyncio.ensure_future(send(flat, entries, number == len(self.buckets) - 1))
            if sending is not None:
                await sending
        finally:
            if sending is not None and not sending.done():
                sending.cancel()

    def keep_memory(self) -> None:
        """Let the next version use this one's shared memory; only once every receiver has taken all of it.

        Shared memory that is touched for the first time is written at a tenth of the rate.
        """
        _kept.extend(self._slots)
        del _kept[:-2]
        self._slots = []

    def _fill(self, flat: torch.Tensor, entries: Sequence[FlattenedTensorMetadata]) -> None:
        for name, place in split(flat, entries):
            tensor = self.tensor(name)
            self._add_sums(name, tensor)  # of the file's bytes, which the copy then finds in the processor's cache
            place.copy_(tensor)


def _slot(size: int) -> torch.Tensor:
    """Shared memory of so many bytes: what an earlier version left, if that is large enough."""
    while _kept:
        with contextlib.suppress(IndexError):  # another thread may have taken it
            if len(kept := _kept.pop()) >= size:
                return kept
    return shared_bytes(size)


def _grouped(listed: list[FlattenedTensorMetadata], bucket_bytes: int) -> list[list[FlattenedTensorMetadata]]:
    """Tensors laid out in buckets of at most so many bytes, or of one tensor; wide types first, so that all align."""
    buckets: list[list[FlattenedTensorMetadata]] = []
    held: list[tuple[str, torch.dtype, Sequence[int]]] = []
    size = 0
    for entry in sorted(listed, key=lambda entry: -entry.dtype.itemsize):
        if held and size + entry.numel > bucket_bytes:
            buckets.append(laid_out(held))
            held, size = [], 0
        held.append((entry.name, entry.dtype, entry.shape))
        size += entry.numel
    return [*buckets, laid_out(held)] if held else buckets
