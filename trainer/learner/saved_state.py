"""Training state in a version folder, read by rows, whichever number of processes wrote it.

One process writes `trainer_state.pt` and `critic.pt`; ranks write one checkpoint of torch.distributed.checkpoint, each
its own part. Both are read here tensor by tensor, under the names `policy/exp_avg/<parameter>` and so on, so that any
number of processes continues from either. Invariant: only the rows that are asked for are read, and they are counted.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch

from weir.trainer.errors import VersionError
from weir.trainer.model.stored_tensors import BytesRead, CountedFile
from weir.trainer.versions.version_folder import STATE_FILE, STATE_INDEX

CRITIC_FILE = "critic.pt"
POLICY, CRITIC = "policy", "critic"
STEP, FIRST, SECOND, AVERAGE, WEIGHTS = "step", "exp_avg", "exp_avg_sq", "average", "weights"
NUM_STEPS, KL_COEF = "num_steps", "kl_coef"


class SavedState(Protocol):
    """The tensors of a folder's state, by name."""

    def __contains__(self, name: str) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Rows of a tensor, on the CPU, up to its last; all of a number.

        Raises OSError and ValueError where it is damaged.
        """
        ...

    def matrix_rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """As `rows`, of a tensor taken as one matrix of its last dimension's width: experts one below the other."""
        ...


def saved_state(folder: Path, count: BytesRead | None = None) -> SavedState | None:
    """The state in a folder, if it has any. Raises `VersionError` where it cannot be read."""
    counted = BytesRead() if count is None else count
    try:
        if (folder / STATE_INDEX).exists():
            return DistributedState(folder, counted)
        return OneProcessState(folder, counted) if (folder / STATE_FILE).exists() else None
    except (OSError, RuntimeError, KeyError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise VersionError(f"cannot load the optimiser's state from {folder}: {error}") from error


class OneProcessState:
    """The files of one process, mapped into memory: of a tensor's pages only those of its rows are read."""

    def __init__(self, folder: Path, count: BytesRead) -> None:
        self._count = count
        files = {POLICY: folder / STATE_FILE, CRITIC: folder / CRITIC_FILE}
        self._tensors: dict[str, torch.Tensor] = {}
        for part, file in files.items():
            if file.exists():
                state = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
                self._tensors |= dict(_named(part, state if part == POLICY else state | state.pop("steps")))

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """As `SavedState.rows`."""
        tensor = self._tensors[name]
        found = (tensor[start:stop] if tensor.ndim else tensor).clone()
        self._count.rows += found.nbytes
        return found

    def matrix_rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """As `SavedState.matrix_rows`."""
        tensor = self._tensors[name]
        found = (tensor.flatten(0, -2) if tensor.ndim > 1 else tensor)[start:stop].clone()
        self._count.rows += found.nbytes
        return found


def _named(part: str, state: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in state.items():
        if name == "optimizer":
            for parameter, moments in value["state"].items():
                yield from ((f"{part}/{kind}/{parameter}", torch.as_tensor(moment)) for kind, moment in moments.items())
        elif isinstance(value, dict):
            yield from ((f"{part}/{name}/{parameter}", tensor) for parameter, tensor in value.items())
        elif isinstance(value, int | float):
            yield f"{part}/{name}", torch.tensor(value, dtype=torch.int64 if isinstance(value, int) else torch.float64)


class DistributedState:
    """A checkpoint of torch.distributed.checkpoint, of which rows are read without what lies between them.

    torch's own reader loads each rank's part of a tensor whole, also where only some of its rows are wanted.
    """

    def __init__(self, folder: Path, count: BytesRead) -> None:
        self.folder = folder
        self._count = count
        index = CountedFile(folder / STATE_INDEX, count)
        metadata: Any = _IndexReader(io.BytesIO(index.read((folder / STATE_INDEX).stat().st_size, 0))).load()
        self._tensors: dict[str, Any] = metadata.state_dict_metadata
        self._storage = {(at.fqn, tuple(at.offset)): place for at, place in metadata.storage_data.items()}
        self._files: dict[str, CountedFile] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """As `SavedState.rows`."""
        entry = self._tensors[name]
        if not entry.size:
            return self._part(name, entry, entry.chunks[0], 0, 1).reshape(())
        stop = min(stop, entry.size[0])
        depth = math.prod(entry.size[1:-1])
        return self.matrix_rows(name, start * depth, stop * depth).reshape(stop - start, *entry.size[1:])

    def matrix_rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """As `SavedState.matrix_rows`."""
        entry = self._tensors[name]
        found = torch.empty((stop - start, *entry.size[1:][-1:]), dtype=entry.properties.dtype)
        for chunk in entry.chunks:
            at, height = _as_matrix(chunk, entry.size)
            first, last = max(start, at), min(stop, at + height)
            if first < last:
                found[first - start : last - start] = self._part(name, entry, chunk, first - at, last - at)
        return found

    def _part(self, name: str, entry: Any, chunk: Any, start: int, stop: int) -> torch.Tensor:
        """Rows of one rank's part, taken as a matrix, from the record of the numbers in what torch.save wrote of it."""
        place = self._storage[name, tuple(chunk.offsets)]
        file = self._files.setdefault(place.relative_path, CountedFile(self.folder / place.relative_path, self._count))
        offset, size = _numbers(file, place.offset, place.length)
        width, dtype = tuple(chunk.sizes[1:][-1:]), entry.properties.dtype
        if size != math.prod(chunk.sizes) * dtype.itemsize:
            raise ValueError(f"{file.path}: {name} has {size} bytes, which is not what {STATE_INDEX} says")
        return file.tensor((stop - start, *width), dtype, offset + start * math.prod(width) * dtype.itemsize)


def _as_matrix(chunk: Any, size: Any) -> tuple[int, int]:
    """First row and height of one rank's part of a tensor that is taken as a matrix."""
    if len(size) == 1:
        return chunk.offsets[0], chunk.sizes[0]
    depth = math.prod(size[1:-1])
    return chunk.offsets[0] * depth + (chunk.offsets[1] if len(size) == 3 else 0), math.prod(chunk.sizes[:-1])


def _numbers(file: CountedFile, offset: int, length: int) -> tuple[int, int]:
    """Where the numbers of the one tensor lie that torch.save wrote at `offset`, and their bytes."""
    with zipfile.ZipFile(_Window(file, offset, length)) as archive:
        record = next(info for info in archive.infolist() if info.filename.endswith("/data/0"))
    if record.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{file.path} is compressed")
    header = file.read(30, offset + record.header_offset)
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return offset + record.header_offset + 30 + names, record.file_size


class _Window(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, file: CountedFile, offset: int, length: int) -> None:
        self._file, self._offset, self._length, self._at = file, offset, length, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        rest = max(self._length - self._at, 0)
        content = self._file.read(rest if size is None or size < 0 else min(size, rest), self._offset + self._at)
        self._at += len(content)
        return content


class _IndexReader(pickle.Unpickler):
    """Reads an index, in which only torch's own descriptions may be named."""

    def find_class(self, module: str, name: str) -> Any:
        if not (module == "torch" or module.startswith(("torch.distributed.checkpoint.", "torch.serialization"))):
            raise pickle.UnpicklingError(f"{STATE_INDEX} names {module}.{name}, which no checkpoint does")
        return super().find_class(module, name)
