"""The operations by which the store changes files, so that a test can run the same code on a failing disk.

Invariant: files that must survive a power cut (segments, Parquet files, their names) change only through a `Disk`.
Every operation raises OSError where the disk refuses. Reads and locks do not use it, nor does the catalog, whose
database syncs its own files.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol


class Disk(Protocol):
    """File operations of the operating system, under the store's names."""

    def open(self, path: Path, flags: int) -> int:
        """Open a file; returns a descriptor that child processes do not inherit."""
        ...

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        ...

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        """Write from `offset` on, possibly not everything; returns the number of bytes."""
        ...

    def reserve(self, fd: int, num_bytes: int) -> None:
        """Extend the file to `num_bytes`, allocated on the disk."""
        ...

    def truncate(self, fd: int, num_bytes: int) -> None:
        """Cut the file to `num_bytes`."""
        ...

    def sync(self, fd: int) -> None:
        """Make the file's bytes and length survive a power cut."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, replacing the file of that name."""
        ...

    def unlink(self, path: Path) -> None:
        """Delete a file; no error where it is gone."""
        ...

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents, so that they survive a power cut."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder survive a power cut."""
        ...


class SystemDisk:
    """The operating system's file operations."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def reserve(self, fd: int, num_bytes: int) -> None:
        os.posix_fallocate(fd, 0, num_bytes)

    def truncate(self, fd: int, num_bytes: int) -> None:
        os.ftruncate(fd, num_bytes)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_folder(self, path: Path) -> None:
        if not path.is_dir():
            self.make_folder(path.parent)
            path.mkdir(exist_ok=True)
            self.sync_folder(path.parent)

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


SYSTEM_DISK = SystemDisk()


def write_all(disk: Disk, fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write every byte. Raises OSError, possibly after some were written."""
    view = memoryview(data)
    while view:
        written = disk.write(fd, view, offset)
        if written == 0:
            raise OSError(errno.EIO, "the disk wrote no bytes")
        view, offset = view[written:], offset + written


@contextlib.contextmanager
def whole_file(disk: Disk, path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears at the end of the block, complete, synced and read-only; after an error there is none.

    Each path has one writer at a time: what a crash left aside is overwritten. Raises OSError.
    """
    aside = path.with_name(f"{path.name}.tmp")
    disk.unlink(aside)
    fd = disk.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        with io.BufferedWriter(_Writing(disk, fd), 2**20) as file:
            yield file
        os.fchmod(fd, 0o444)
        disk.sync(fd)
    except BaseException:
        with contextlib.suppress(OSError):
            disk.unlink(aside)
        raise
    finally:
        disk.close(fd)
    disk.rename(aside, path)
    disk.sync_folder(path.parent)


class _Writing(io.RawIOBase):
    """A file object over a descriptor of a disk, positioned at its start."""

    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk, self._fd, self._end = disk, fd, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._end

    def write(self, data: Any) -> int:
        written = self._disk.write(self._fd, memoryview(data), self._end)
        self._end += written
        return written
