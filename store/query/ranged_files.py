"""Files of object storage as DuckDB reads them: each read fetches the range that is not on this machine yet.

Invariant: the files of one snapshot can be read, and nothing else.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fsspec import AbstractFileSystem

from weir.store.catalog.rows import FileRow
from weir.store.config import StoreConfig
from weir.store.shared.object_store import Objects
from weir.store.shared.part_copies import PartCopy

PROTOCOL = "weirobjects"


class RangedFiles(AbstractFileSystem):  # type: ignore[misc]
    """The file system to register in a DuckDB connection; its paths are `url_of` a file."""

    protocol = PROTOCOL
    cachable = False

    def __init__(self, config: StoreConfig, objects: Objects, files: Sequence[FileRow]) -> None:
        super().__init__()
        self._objects = objects
        self._folder = config.folder
        self._sizes = {file.path: file.num_bytes for file in files}

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """The size of a file. Raises FileNotFoundError."""
        name = self._strip_protocol(path)
        if name not in self._sizes:
            raise FileNotFoundError(path)
        return {"name": name, "size": self._sizes[name], "type": "file"}

    def modified(self, path: str) -> datetime:
        """The same for all files, since none changes."""
        return datetime(1970, 1, 1, tzinfo=UTC)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> _RangedFile:
        found = self.info(path)
        return _RangedFile(PartCopy(self._objects, self._folder, found["name"], found["size"]))


def url_of(file: FileRow) -> str:
    """The path of a file for DuckDB."""
    return f"{PROTOCOL}://{file.path}"


class _RangedFile(io.RawIOBase):
    """An open file."""

    def __init__(self, part: PartCopy) -> None:
        self._part = part
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._part.num_bytes}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._part.num_bytes if size is None or size < 0 else self._at + size
        data = self._part.read(self._at, end)
        self._at += len(data)
        return data

    def close(self) -> None:
        self._part.close()
        super().close()
