"""Training state that leaves its device for a while and comes back: to pinned memory from a GPU, to a file from a CPU.

Invariants: tensors stay the objects that they are, with all views of them, and come back bit for bit; meanwhile their
memory is the device's again, and the system's. The file has no name, so it goes with its process.
"""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import torch

from weir.trainer.errors import TrainerError


class PutAway:
    """The memory of tensors, elsewhere; `num_bytes` of it.

    At most `may_stay` bytes stay where they are, the smallest tensors first.
    """

    def __init__(self, tensors: Iterable[torch.Tensor], folder: Path, *, may_stay: int = 0) -> None:
        """Raises `TrainerError` where the folder's disk or the machine has no room; then nothing has moved."""
        self._file: IO[bytes] | None = None
        self._moved: list[tuple[torch.UntypedStorage, int, torch.UntypedStorage | None]] = []
        self.num_bytes = 0
        storages = sorted(_storages(tensors), key=lambda storage: storage.nbytes())
        stay = 0
        chosen = []
        for storage in storages:
            stay += storage.nbytes()
            if stay > may_stay:
                chosen.append(storage)
        try:
            for storage in chosen:
                self._moved.append((storage, storage.nbytes(), self._copy(storage, folder)))
        except OSError as error:
            raise TrainerError(
                f"training state cannot be put into {folder}: {error.strerror or error}; make room there"
            ) from error
        except RuntimeError as error:  # torch's, for pinned memory
            raise TrainerError(
                f"training state cannot be put into the machine's memory: {error}; make room there"
            ) from error
        for storage, num_bytes, _ in self._moved:
            storage.resize_(0)
            self.num_bytes += num_bytes

    def bring_back(self) -> None:
        """Have the tensors as they were; once. Raises OSError where the file cannot be read."""
        if self._file is not None:
            self._file.seek(0)
        for storage, num_bytes, copy in self._moved:
            storage.resize_(num_bytes)
            if copy is not None:
                storage.copy_(copy)
            else:
                assert self._file is not None
                _read_into(self._file, storage)
        self._moved = []
        if self._file is not None:
            self._file.close()

    def _copy(self, storage: torch.UntypedStorage, folder: Path) -> torch.UntypedStorage | None:
        if storage.device.type == "cuda":
            pinned = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=True).untyped_storage()
            return pinned.copy_(storage)
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - it stays open until the tensors are back
        content, written = _bytes_of(storage), 0
        while written < len(content):
            written += self._file.write(content[written:])
        return None


def give_back() -> None:
    """Return freed memory to the device and to the system, which otherwise stays with the allocators."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; other libraries return large blocks themselves
    if trim is not None:
        trim(0)


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device; 0 for a CPU, whose memory is everybody's."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0


def _storages(tensors: Iterable[torch.Tensor]) -> list[torch.UntypedStorage]:
    """The memory of tensors, each once, in a form that can be given back."""
    found: dict[int, torch.UntypedStorage] = {}
    for tensor in tensors:
        if not tensor.untyped_storage().resizable():  # a file's memory, as models are loaded
            with torch.no_grad():
                tensor.data = tensor.clone()
        storage = tensor.untyped_storage()
        if storage.nbytes():
            found.setdefault(storage.data_ptr(), storage)
    return list(found.values())


def _bytes_of(storage: torch.UntypedStorage) -> memoryview:
    """A storage's bytes; by its address, because numpy's view of it would keep it from being given back."""
    return memoryview((ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())).cast("B")


def _read_into(file: IO[bytes], storage: torch.UntypedStorage) -> None:
    content, read = _bytes_of(storage), 0
    while read < len(content):
        count = os.readv(file.fileno(), [content[read:]])
        if not count:
            raise OSError("the file of the training state ended early")
        read += count
