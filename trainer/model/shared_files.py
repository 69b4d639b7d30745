"""The published weights: safetensors files that all ranks write at once, each its own rows at their offsets.

Invariant: the files are those that one process would write, to the byte; no rank ever holds another's rows.
"""

from __future__ import annotations

import json
import math
import os
import weakref
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

FILE_BYTES = 4 << 30  # largest file, but for a tensor that is larger
NAMES = {torch.float32: "F32", torch.bfloat16: "BF16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What one rank hands out of a version: name, rows and the first row of parts of tensors.

    All ranks go through all `rows`, which may take part in collective operations. `stays`: they are the memory of
    parameters, which the next step changes; else they may be computed for this purpose alone.
    """

    shapes: Mapping[str, tuple[int, ...]]  # of all tensors, whole
    dtype: torch.dtype  # that they are published in
    exact: Container[str]  # those that stay float32
    rows: Iterator[tuple[str, torch.Tensor, int]]
    stays: bool

    def dtypes(self) -> dict[str, torch.dtype]:
        """The type of every published tensor."""
        return {name: torch.float32 if name in self.exact else self.dtype for name in self.shapes}


class SharedFiles:
    """The files of tensors of one precision, but for those named in `exact`, which stay float32.

    All ranks make one over the same folder and shapes.
    """

    def __init__(
        self,
        folder: Path,
        shapes: Mapping[str, tuple[int, ...]],
        dtype: torch.dtype,
        *,
        exact: Container[str] = (),
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self.folder = folder
        self._dtypes = {name: torch.float32 if name in exact else dtype for name in shapes}
        self._shapes = dict(sorted(shapes.items()))
        self._files = self._divided(file_bytes)
        self._headers = {name: self._header(tensors) for name, tensors in self._files.items()}
        self._places = self._offsets()
        self._open: dict[str, int] = {}

    def create(self) -> None:
        """Make the files, with headers and in full length, and the index of several; one rank does. Raises OSError."""
        for name, tensors in self._files.items():
            header = self._headers[name]
            with (self.folder / name).open("xb") as file:
                file.write(header)
                os.posix_fallocate(file.fileno(), 0, len(header) + sum(map(self._size, tensors)))
        if len(self._files) > 1:
            index = {
                "metadata": {"total_size": sum(map(self._size, self._shapes))},
                "weight_map": {tensor: name for name, tensors in self._files.items() for tensor in tensors},
            }
            (self.folder / "model.safetensors.index.json").write_text(
                json.dumps(index, indent=2, sort_keys=True) + "\n"
            )

    def write(self, name: str, rows: torch.Tensor, start: int = 0) -> None:
        """Write rows of a tensor, from row `start` on, rounded to the files' precision. Raises OSError."""
        file, offset = self._places[name]
        if file not in self._open:
            self._open[file] = os.open(self.folder / file, os.O_WRONLY)
            weakref.finalize(self, os.close, self._open[file])
        dtype = self._dtypes[name]
        content = rows.detach().to(dtype).cpu().contiguous().flatten().view(torch.uint8).numpy()
        rest = content.data
        offset += start * math.prod(self._shapes[name][1:]) * dtype.itemsize
        while rest:
            done = os.pwrite(self._open[file], rest, offset)
            offset, rest = offset + done, rest[done:]

    def _size(self, name: str) -> int:
        return math.prod(self._shapes[name]) * self._dtypes[name].itemsize

    def _divided(self, file_bytes: int) -> dict[str, list[str]]:
        """The tensors of each file, in order of their names."""
        parts: list[list[str]] = [[]]
        held = 0
        for name in self._shapes:
            if parts[-1] and held + self._size(name) > file_bytes:
                parts.append([])
                held = 0
            parts[-1].append(name)
            held += self._size(name)
        if len(parts) == 1:
            return {"model.safetensors": parts[0]}
        return {f"model-{at + 1:05d}-of-{len(parts):05d}.safetensors": part for at, part in enumerate(parts)}

    def _header(self, tensors: list[str]) -> bytes:
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name in tensors:
            offsets = [end, end := end + self._size(name)]
            header[name] = {
                "dtype": NAMES[self._dtypes[name]],
                "shape": list(self._shapes[name]),
                "data_offsets": offsets,
            }
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    def _offsets(self) -> dict[str, tuple[str, int]]:
        found: dict[str, tuple[str, int]] = {}
        for file, tensors in self._files.items():
            offset = len(self._headers[file])
            for name in tensors:
                found[name] = (file, offset)
                offset += self._size(name)
        return found
