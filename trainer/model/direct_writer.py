"""Writes a file past the page cache (`O_DIRECT`) and hashes it on the way.

Invariant: after the `with` block the whole content is on disk, and `entry` describes the written bytes. Meant for
optimiser state, which is two to three times as large as the weights and read only after a restart. Measured at 500 MB,
in turn with other writes on two cores: 1.3 to 2.1 s, against 3.5 to 5.0 s for buffered writes with fsync and
`posix_fadvise(DONTNEED)`; at 20 MB both take the same. A file system without `O_DIRECT` gets buffered writes.
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
    """A new file that takes bytes of any length inside a `with` block; afterwards `entry` has its hash and size.

    Raises FileExistsError for an existing file, and OSError where writing fails.
    """

    entry: FileEntry

    def __init__(self, path: Path) -> None:
        self._descriptor = _open_new(path)
        self._filling, self._writing = (
            mmap.mmap(-1, BUFFER_BYTES) for _ in range(2)
        )  # pages, so that they are aligned
        self._held = 0  # bytes in the filling buffer
        self._size = 0
        self._digest = hashlib.sha256()
        self._disk = ThreadPoolExecutor(max_workers=1)  # writes one buffer while the next is hashed
        self._written: Future[None] | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; returns their number."""
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
        """Do nothing: a buffer is written when it is full, and at the end."""

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
        """Write the filled buffer in whole blocks; the excess of the last block is truncated at the end."""
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
        path.unlink(missing_ok=True)  # some file systems create the file before they refuse the flag
        return os.open(path, flags, 0o644)


def _leave_direct(descriptor: int) -> bool:
    """Switch to buffered writes; False where they are on already. Some file systems refuse the first direct write."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
    return bool(flags & os.O_DIRECT)
