"""A file that is written once, past the page cache, and hashed on the way: what nobody reads soon.

Invariant: when `close` returns the file's whole content is on disk, and its entry is of the bytes that were handed in.
An optimiser's state is two to three times the weights and is read after a restart only; in the page cache it would take
the place of what is read next, and memory that the kernel has to find first. Where a file system knows no such writes
(`O_DIRECT`) the same bytes go through the cache.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from weir.store.log.block_buffer import whole_blocks
from weir.trainer.versions.version_folder import FileEntry

BUFFER_BYTES = 1 << 20


class DirectFile:
    """A new file that takes bytes of any length inside a `with`; afterwards `entry` says what was written."""

    entry: FileEntry

    def __init__(self, path: Path) -> None:
        self._descriptor = _open_new(path)
        self._filling, self._writing = (
            mmap.mmap(-1, BUFFER_BYTES) for _ in range(2)
        )  # pages, so that they are aligned
        self._held = 0  # bytes that are to be written
        self._size = 0
        self._digest = hashlib.sha256()
        self._disk = ThreadPoolExecutor(max_workers=1)  # writes one buffer while the next is hashed
        self._written: Future[None] | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Take the next bytes; how many there were."""
        view = memoryview(data).cast("B")
        start = 0
        while start < len(view):
            part = view[start : start + BUFFER_BYTES - self._held]
            self._filling[self._held : self._held + len(part)] = part
            self._held += len(part)
            start += len(part)
            if self._held == BUFFER_BYTES:
                self._hand_over()
        return len(view)

    def flush(self) -> None:
        """Nothing: what is held is written when there is enough of it, and at the end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._disk.shutdown()
            os.close(self._descriptor)

    def _finish(self) -> None:
        self._hand_over()
        self._wait()
        os.ftruncate(self._descriptor, self._size)
        os.fsync(self._descriptor)
        self.entry = FileEntry(sha256=self._digest.hexdigest(), size_bytes=self._size)

    def _hand_over(self) -> None:
        """Have what is held written, in whole blocks of which the last is cut off at the end of the file."""
        self._wait()
        self._filling, self._writing = self._writing, self._filling
        self._written = self._disk.submit(self._write_out, whole_blocks(self._held))
        with memoryview(self._writing) as whole, whole[: self._held] as held:
            self._digest.update(held)
        self._size += self._held
        self._held = 0

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()

    def _write_out(self, size: int) -> None:
        with memoryview(self._writing) as whole:
            done = 0
            while done < size:
                with whole[done:size] as rest:
                    try:
                        done += os.write(self._descriptor, rest)
                    except OSError as error:
                        if error.errno != errno.EINVAL or not _leave_direct(self._descriptor):
                            raise


def _open_new(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, flags | os.O_DIRECT, 0o644)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        path.unlink(missing_ok=True)  # some file systems make the file before they refuse the flag
        return os.open(path, flags, 0o644)


def _leave_direct(descriptor: int) -> bool:
    """Go through the cache from here on; False where it did so already. Some file systems refuse the first write."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
    return bool(flags & os.O_DIRECT)
