"""The tensors of a folder's safetensors files, read by rows: no byte is read that was not asked for.

Invariant: every byte of a file goes through `CountedFile`, which counts it; nothing is mapped into memory.
"""

from __future__ import annotations

import json
import math
import os
import weakref
from dataclasses import dataclass
from pathlib import Path

import torch

from weir.trainer.errors import TrainerUsageError

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F64": torch.float64}


@dataclass(slots=True)
class BytesRead:
    """What one process has read of weights and state."""

    rows: int = 0  # of tensors
    rest: int = 0  # headers and directories of files, persistent buffers, adapters of LoRA


class CountedFile:
    """A file that is read at offsets."""

    def __init__(self, path: Path, count: BytesRead) -> None:
        self.path = path
        self._count = count
        self._descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)

    def read(self, size: int, offset: int) -> bytes:
        """Bytes that belong to no tensor. Raises OSError where the file ends before."""
        content = os.pread(self._descriptor, size, offset)
        if len(content) != size:
            raise OSError(f"{self.path} ends before byte {offset + size}; copy the file again")
        self._count.rest += size
        return content

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype, offset: int) -> torch.Tensor:
        """Numbers of a tensor, in its stored precision. Raises OSError where the file ends before."""
        found = torch.empty(shape, dtype=dtype)
        place = found.flatten().view(torch.uint8).numpy().data
        done = 0
        while done < len(place):
            size = os.preadv(self._descriptor, [place[done:]], offset + done)
            if size == 0:
                raise OSError(f"{self.path} ends before byte {offset + len(place)}; copy the file again")
            done += size
        self._count.rows += done
        return found


@dataclass(frozen=True, slots=True)
class _Stored:
    file: CountedFile
    dtype: str
    shape: tuple[int, ...]
    offset: int  # of its first byte, in the file


class StoredTensors:
    """The tensors by name. Raises `TrainerUsageError` for a folder without safetensors files that can be read."""

    def __init__(self, folder: Path, count: BytesRead | None = None) -> None:
        self.folder = folder
        self.count = BytesRead() if count is None else count
        self._tensors: dict[str, _Stored] = {}
        try:
            for path in sorted(folder.glob("*.safetensors")):
                self._tensors |= _tensors_of(CountedFile(path, self.count))
        except (OSError, ValueError, KeyError) as error:
            raise TrainerUsageError(f"{folder} is not a Hugging Face model folder that loads: {error}") from error
        if not self._tensors:
            raise TrainerUsageError(
                f"{folder} is not a Hugging Face model folder that loads: ranks read safetensors files, and there are "
                "none; save the model in that form"
            )

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Rows `start` to `stop` of a tensor of at least one dimension, in its stored precision.

        Raises `TrainerUsageError` where they cannot be read.
        """
        stored = self._tensors[name]
        if stored.dtype not in DTYPES:
            raise TrainerUsageError(
                f"{self.folder}: {name} is stored as {stored.dtype}, which is not trained; convert it "
                "(`weir model get` writes float32 or bfloat16)"
            )
        dtype, shape = DTYPES[stored.dtype], (stop - start, *stored.shape[1:])
        row = math.prod(stored.shape[1:]) * dtype.itemsize
        try:
            return stored.file.tensor(shape, dtype, stored.offset + start * row)
        except OSError as error:
            raise TrainerUsageError(f"{self.folder}: {name} cannot be read: {error}") from error

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self._tensors[name].shape

    def whole(self, name: str) -> torch.Tensor:
        """A tensor, in its stored precision. Raises as `rows`."""
        shape = self._tensors[name].shape
        return self.rows(name, 0, shape[0]) if shape else self.rows(name, 0, 1).reshape(())


def _tensors_of(file: CountedFile) -> dict[str, _Stored]:
    size = int.from_bytes(file.read(8, 0), "little")
    header = json.loads(file.read(size, 8))
    header.pop("__metadata__", None)
    return {
        name: _Stored(file, entry["dtype"], tuple(entry["shape"]), 8 + size + entry["data_offsets"][0])
        for name, entry in header.items()
    }
