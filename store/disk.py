"""The operations by which the store changes files, so that a test can put a failing disk under the same code.

Invariant: what must be found again after a power cut (segments, Parquet files, their names) changes only through a
`Disk`. Every operation raises OSError when the disk refuses. Not here: reading, locks, and the catalog, whose database
looks after its own files.
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
    """What the operating system does, by the names of the store."""

    def open(self, path: Path, flags: int) -> int:
        """A descriptor of the file, which child processes do not inherit."""
        ...

    def close(self, fd: int) -> None:
        """Give the descriptor back."""
        ...

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        """Write from `offset` on, perhaps not all: returns how many bytes."""
        ...

    def reserve(self, fd: int, num_bytes: int) -> None:
        """Make the file so long, with room for every byte."""
        ...

    def truncate(self, fd: int, num_bytes: int) -> None:
        """Cut the file off."""
        ...

    def sync(self, fd: int) -> None:
        """The file's bytes and length survive a power cut."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, in place of what had it."""
        ...

    def unlink(self, path: Path) -> None:
        """Delete a file, which may be gone already."""
        ...

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, where they are missing; a power cut does not undo it."""
        ...

    def sync_folder(self, path: Path) -> None:
        """The names in a folder survive a power cut."""
        ...


class SystemDisk:
    """The operating system's own."""

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
    """Write every byte. Raises OSError, and then some of them may be written."""
    view = memoryview(data)
    while view:
        written = disk.write(fd, view, offset)
        if written == 0:
            raise OSError(errno.EIO, "the disk took no bytes")
        view, offset = view[written:], offset + written


@contextlib.contextmanager
def whole_file(disk: Disk, path: Path) -> Iterator[BinaryIO]:
    """A file that appears when the block ends, whole and synced, and never changes; after an error there is none.

    Whoever writes a path is alone with it: what a crash left aside is written over.
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
    """A file object over a descriptor of a disk, from the file's start on."""

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
