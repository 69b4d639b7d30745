"""Writes the current segment of a log: allocated at full size, filled with whole frames in whole blocks, sealed by a
rename.

Invariants: after an error, none of the failed frames lies in front of a later one; a number names one segment for ever.
With `durability = "fsync"` writes bypass the page cache (O_DIRECT) where the file system allows: finding a page for
every block of a new file costs as much as the disk itself; docs/store.md has the figures.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path

from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.disk import Disk, write_all
from weir.store.log.block_buffer import BLOCK, BlockBuffer, whole_blocks
from weir.store.log.segment_format import HEADER, OPEN_SUFFIX, SEALED_SUFFIX, frame_head, header_bytes, list_segments

LOCK = "lock"  # locked by the process that writes here; contains the last number used
SEAL_REQUEST = "seal"  # a file of this name in the writer's folder requests a seal
WAKE_S = 0.5  # how often an idle writer checks its segment's age and for a request to seal


class SegmentFile:
    """The segment that is being written. Only the writer's thread uses it."""

    def __init__(self, folder: Path, config: StoreConfig, disk: Disk) -> None:
        self._folder = folder
        self._config = config
        self._disk = disk
        known = [s.seq for s in list_segments(folder.parent) if s.writer == folder.name]
        self._next_seq = max([int((folder / LOCK).read_bytes() or 0), *known]) + 1
        self._direct = os.O_DIRECT if config.durability == "fsync" else 0
        self._blocks = BlockBuffer()
        self._fd = -1
        self._path = folder
        self._size = 0
        self._end = 0
        self._seal_at = 0.0
        self._look_at = 0.0

    def add(self, payload: bytes) -> None:
        """Add a record's payload to the next `write`."""
        self._blocks.add(frame_head(payload))
        self._blocks.add(payload)

    def write(self) -> int:
        """Write what was added; returns its bytes. Raises OSError, and then none of it counts as written."""
        try:
            num_bytes = self._blocks.num_added
            if num_bytes:
                self._write(num_bytes)
            return num_bytes
        finally:
            self._blocks.drop()

    def _write(self, num_bytes: int) -> None:
        if self._fd >= 0 and self._end + num_bytes > self._size:
            self._seal()
        if self._fd < 0:
            self._open(num_bytes)
        try:
            write_all(self._disk, self._fd, self._blocks.blocks(), self._end - self._end % BLOCK)
            if self._config.durability == "fsync":
                self._disk.sync(self._fd)
        except OSError as error:
            self._abandon(error)
            raise
        self._blocks.advance()
        self._end += num_bytes

    def probe(self) -> None:
        """Raise OSError where the disk has no room for a segment."""
        if self._fd < 0:
            self._open(0)
            self._discard()

    def seal_when_due(self, last: bool) -> None:
        """Seal by age, on request, or because the writer closes."""
        now = time.monotonic()
        if self._fd < 0:
            due = False
        elif last or now >= self._seal_at:
            due = True
        elif now >= self._look_at:
            self._look_at = now + WAKE_S
            due = (self._folder / SEAL_REQUEST).exists()
        else:
            due = False
        if due:
            self._seal()
            self._disk.unlink(self._folder / SEAL_REQUEST)

    def _open(self, num_bytes: int) -> None:
        """Create a segment at its full size, so that a full disk shows here and not halfway.

        The header is written and synced with the first records.
        """
        size = whole_blocks(max(self._config.segment_bytes, HEADER.size + num_bytes))
        path = self._folder / f"{self._next_seq:08d}{OPEN_SUFFIX}"
        self._note_number()
        fd = self._create(path)
        try:
            self._disk.reserve(fd, size)
            if self._config.durability == "fsync":
                self._disk.sync_folder(self._folder)
        except OSError:
            self._disk.close(fd)
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
            raise
        self._blocks.begin(header_bytes(now_us()))
        self._next_seq += 1
        self._fd, self._path, self._size, self._end = fd, path, size, HEADER.size
        self._seal_at = time.monotonic() + self._config.seal_age_s

    def _create(self, path: Path) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            return self._disk.open(path, flags | self._direct)
        except OSError as error:
            if not self._direct or error.errno != errno.EINVAL:
                raise
        self._direct = 0  # this file system has no direct writes
        self._disk.unlink(path)  # the failed open may have created it
        return self._disk.open(path, flags)

    def _note_number(self) -> None:
        """Store the number in the writer's lock file: the catalog knows segments by it, so it is never used twice.

        It is synced in every mode: a number that came back after a power cut would hide the calls recorded under it.
        """
        fd = self._disk.open(self._folder / LOCK, os.O_RDWR)
        try:
            write_all(self._disk, fd, b"%08d" % self._next_seq, 0)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)

    def _seal(self) -> None:
        """Cut the trailing zeros and rename. The descriptor is closed even where the disk refuses.

        Nothing is synced: acknowledged records are as durable as promised, and a power cut that undoes this leaves an
        open segment of a dead writer.
        """
        fd, self._fd = self._fd, -1
        try:
            self._disk.truncate(fd, self._end)
            self._disk.rename(self._path, self._path.with_suffix(SEALED_SUFFIX))
        finally:
            self._disk.close(fd)

    def _abandon(self, error: OSError) -> None:
        """After a failed write, cut the segment back to its last whole frame and leave it."""
        if error.errno == errno.EINVAL:
            self._direct = 0  # perhaps another block size: the next segment uses the page cache
        if self._end == HEADER.size:
            self._discard()
            return
        with contextlib.suppress(OSError):  # readers stop at the torn frame anyway
            self._seal()

    def _discard(self) -> None:
        """Delete a segment without records."""
        fd, self._fd = self._fd, -1
        self._disk.close(fd)
        with contextlib.suppress(OSError):
            self._disk.unlink(self._path)
