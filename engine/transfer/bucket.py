"""Flattened buckets: many tensors as one flat tensor of bytes in shared memory, in SGLang's form.

The form is that of /update_weights_from_tensor with load_format "flattened_bucket": a pickle of the flat tensor, by the
name of its shared memory, and of where each tensor lies in it. Invariants: a bucket that came over the wire names only
what `_ALLOWED` lists, so that unpickling it runs no other code; its entries lie within its bytes, or `BadBucket` is
raised. Every pickle may be opened once: the memory counts its openings.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import pickle
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import multiprocessing
from torch.multiprocessing import reductions

FORMAT = "flattened_bucket"
_MODULE = "sglang.srt.weight_sync.tensor_bucket"  # where SGLang's class of the same name and fields lives
_NAME = "FlattenedTensorMetadata"
_REBUILT_BY = ("rebuild_tensor", "rebuild_storage_filename", "rebuild_storage_empty", "rebuild_typed_storage")
_ALLOWED = {
    ("torch", "Tensor"),
    ("torch", "Size"),
    ("torch.storage", "UntypedStorage"),
    ("torch.storage", "TypedStorage"),
    *(("torch", name) for name in ("uint8", "float32", "float16", "bfloat16", "UntypedStorage")),
    *(("torch.multiprocessing.reductions", name) for name in _REBUILT_BY),
}
_DEVICE = 6  # which argument of torch's rebuild_cuda_tensor numbers the GPU
_pickling = threading.Lock()  # the sharing strategy and the table of modules belong to the process


class BadBucket(ValueError):
    """What came is no bucket, or lies about what it holds."""


@dataclass(frozen=True)
class FlattenedTensorMetadata:
    """Where a tensor lies in a bucket, in bytes: `numel` of them from `start_idx` up to `end_idx`."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    start_idx: int
    end_idx: int
    numel: int


FlattenedTensorMetadata.__module__ = _MODULE  # a pickle names it as SGLang's own


def laid_out(
    tensors: Sequence[tuple[str, torch.dtype, Sequence[int]]],
) -> list[FlattenedTensorMetadata]:
    """Where tensors of these names, types and shapes lie in a bucket, one behind the other."""
    entries, start = [], 0
    for name, dtype, shape in tensors:
        size = torch.Size(shape)
        end = start + size.numel() * dtype.itemsize
        entries.append(FlattenedTensorMetadata(name, size, dtype, start, end, end - start))
        start = end
    return entries


def shared_bytes(count: int) -> torch.Tensor:
    """A tensor of `count` bytes, (count,) uint8, in shared memory that other processes open by its name."""
    with _pickling, _by_name():
        flat = torch.empty(count, dtype=torch.uint8)
        flat.share_memory_()  # type: ignore[no-untyped-call]
        return flat


def packed(flat: torch.Tensor, entries: Sequence[FlattenedTensorMetadata]) -> str:
    """The bucket for one receiver, in base64; `flat` (bytes,) uint8 must stay until the receiver has answered.

    That of a GPU goes by CUDA IPC, and SGLang alone opens it.
    """
    file = io.BytesIO()
    with _pickling, _by_name(), _named_as_sglang():
        pickler: Any = ForkingPickler(file)
        pickler.dispatch_table = {**pickler.dispatch_table, torch.Tensor: _reduced}
        pickler.dump({"flattened_tensor": flat, "metadata": list(entries)})
    return base64.b64encode(file.getvalue()).decode()


def unpacked(text: str) -> tuple[torch.Tensor, list[FlattenedTensorMetadata]]:
    """The flat tensor of a bucket, which still is the sender's memory, and its entries. Raises BadBucket."""
    try:
        held = _Unpickler(io.BytesIO(base64.b64decode(text, validate=True))).load()
        flat, entries = held["flattened_tensor"], list(held["metadata"])
    except (binascii.Error, pickle.UnpicklingError, RuntimeError, EOFError, KeyError, TypeError, OSError) as error:
        raise BadBucket(f"no bucket of shared memory that can be opened here: {error}") from error
    if not isinstance(flat, torch.Tensor) or flat.dtype != torch.uint8 or flat.dim() != 1:
        raise BadBucket("flattened_tensor is no flat tensor of bytes")
    return flat, entries


def split(flat: torch.Tensor, entries: Sequence[FlattenedTensorMetadata]) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of a bucket; the tensors are parts of `flat` (bytes,) uint8. Raises BadBucket."""
    for entry in entries:
        if not isinstance(entry, FlattenedTensorMetadata):
            raise BadBucket(f"metadata holds {type(entry).__name__}")
        size = entry.dtype.itemsize
        fits = 0 <= entry.start_idx <= entry.end_idx <= len(flat) and entry.start_idx % size == 0
        if not fits or entry.end_idx - entry.start_idx != entry.shape.numel() * size:
            raise BadBucket(f"{entry.name} is said to lie at bytes {entry.start_idx} to {entry.end_idx}")
        yield entry.name, flat[entry.start_idx : entry.end_idx].view(entry.dtype).view(entry.shape)


def _reduced(tensor: torch.Tensor) -> Any:
    """As torch reduces it; a GPU is named by its UUID, as SGLang expects it."""
    rebuild, held = reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
    if rebuild is reductions.rebuild_cuda_tensor:
        uuid = str(torch.cuda.get_device_properties(held[_DEVICE]).uuid)
        held = (*held[:_DEVICE], uuid, *held[_DEVICE + 1 :])
    return rebuild, held


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (_MODULE, _NAME):
            return FlattenedTensorMetadata
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} may not be part of a bucket")
        return super().find_class(module, name)


@contextlib.contextmanager
def _by_name() -> Iterator[None]:
    """Share memory by name: a descriptor could be fetched only by processes that have the sender's secret."""
    before = multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        multiprocessing.set_sharing_strategy(before)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _named_as_sglang() -> Iterator[None]:
    """Pickle looks a class up where it says that it lives; SGLang itself is not needed here."""
    stand_in: Any = types.ModuleType(_MODULE)
    setattr(stand_in, _NAME, FlattenedTensorMetadata)
    parents = (_MODULE.rsplit(".", depth)[0] for depth in range(3, 0, -1))
    before = {name: sys.modules.get(name) for name in (*parents, _MODULE)}
    sys.modules.update({name: held or types.ModuleType(name) for name, held in before.items()})
    sys.modules[_MODULE] = stand_in
    try:
        yield
    finally:
        for name, held in before.items():
            if held is None:
                del sys.modules[name]
            else:
                sys.modules[name] = held
