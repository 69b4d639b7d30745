"""The write-ahead log: one writer thread per process appends records to segments of its own.

Invariants: once a future has resolved, kill -9 cannot lose the record (`durability = "os"`), nor can a power cut
(`"fsync"`); a failed future leaves nothing half-written in front of later records; `append` never blocks. After the
disk refused, the segment is cut back and left, and the next record opens a new one; until a write succeeds the disk is
probed twice a second, so that `stats.failure` is current.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from weir.store.config import StoreConfig
from weir.store.disk import SYSTEM_DISK, Disk
from weir.store.errors import LogClosed, LogFull, LogLocked, StoreError, StoreUnavailable
from weir.store.log.intents import Intents
from weir.store.log.segment_format import OPEN_SUFFIX, SEALED_SUFFIX, SegmentContents, list_segments, read_segment
from weir.store.log.segment_writer import LOCK, WAKE_S, SegmentFile
from weir.store.records.call_record import CallRecord, encode_record

__all__ = ["LogStats", "LogWriter", "SegmentContents", "read_segment"]

BATCH_RECORDS = 64
LOOKED_AT_S = 0.5  # a lock that is held for longer is a writer's

_logger = logging.getLogger("weir.store.log.writer")
_Entry = tuple[CallRecord, "Future[None]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStats:
    """Counts since the writer was opened, and its current state."""

    records: int
    bytes: int
    failed: int
    queue_depth: int
    failure: str | None  # why the disk refuses records; None while it does not
    writing_s: float  # how long the current write has taken


class _Written(Future[None]):
    """The outcome of one record. A waiter that goes away does not cancel the record."""

    def cancel(self) -> bool:
        return False


class LogWriter:
    """Appends call records under `root/log/<writer>/`. One process owns a writer name."""

    def __init__(self, root: Path, writer: str, config: StoreConfig, disk: Disk = SYSTEM_DISK) -> None:
        if not writer or "/" in writer or writer.startswith("."):
            raise ValueError(f"{writer!r} is no name for a log writer: it becomes a folder's name")
        self.folder = root / "log" / writer
        self._config = config
        self._lock_fd = _lock_folder(self.folder, disk)
        self._segments = SegmentFile(self.folder, config, disk)
        self.intents = Intents(self.folder, disk)  # of the thread that appends
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # makes the check of `closed` and the put one step
        self._closed = False
        self._records = self._bytes = self._failed = 0
        self._failure: str | None = None
        self._writing_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"weir-log-{writer}", daemon=True)
        self._thread.start()

    def append(self, record: CallRecord) -> Future[None]:
        """Queue a record. The future fails with LogFull, LogClosed, StoreUnavailable, or ValueError."""
        future = _Written()
        with self._gate:
            if not self._closed and self._queue.qsize() < self._config.queue_records:
                self._queue.put((record, future))
                return future
            self._failed += 1
            closed = self._closed
        future.set_exception(self._refusal(record, closed))
        return future

    def _refusal(self, record: CallRecord, closed: bool) -> StoreError:
        if closed:
            return LogClosed(f"call {record.call_id} was not recorded: the log {self.folder} is closed")
        return LogFull(
            f"call {record.call_id} was not recorded: {self._config.queue_records} records wait for the disk of "
            f"{self.folder}; use a faster disk, or raise store.queue_records"
        )

    @property
    def stats(self) -> LogStats:
        """Counts of recorded, refused and waiting records."""
        since = self._writing_since
        return LogStats(
            records=self._records,
            bytes=self._bytes,
            failed=self._failed,
            queue_depth=self._queue.qsize(),
            failure=self._failure,
            writing_s=time.monotonic() - since if since is not None else 0.0,
        )

    def count_segments(self) -> int:
        """The number of this writer's segments on the disk: open, waiting for compaction, or in their grace."""
        return sum(1 for _ in self.folder.glob(f"*{OPEN_SUFFIX}"))

    def close(self) -> None:
        """Write waiting records, seal the segment, release the writer name. May be called twice."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()
        with self._gate:
            if self._lock_fd >= 0:
                self.intents.close()
                os.close(self._lock_fd)
                self._lock_fd = -1

    def _run(self) -> None:
        open_for_more = True
        while open_for_more:
            batch, open_for_more = self._next_batch()
            if batch:
                self._writing_since = time.monotonic()
                self._write_batch(batch)
                self._writing_since = None
            elif self._failure is not None:
                self._try_again()
            try:
                self._segments.seal_when_due(last=not open_for_more)
            except OSError as error:
                _logger.warning("cannot seal a segment in %s: %s; it stays readable as it is", self.folder, error)

    def _try_again(self) -> None:
        try:
            self._segments.probe()
        except OSError as error:
            self._failure = str(_unavailable(self.folder, error))
        else:
            self._failure = None

    def _next_batch(self) -> tuple[list[_Entry], bool]:
        """Wait for records. With False: the writer was closed, and these are the last."""
        batch: list[_Entry] = []
        try:
            entry = self._queue.get(timeout=WAKE_S)
            while entry is not None:
                batch.append(entry)
                if len(batch) == BATCH_RECORDS:
                    return batch, True
                entry = self._queue.get_nowait()
        except queue.Empty:
            return batch, True
        return batch, False

    def _write_batch(self, batch: list[_Entry]) -> None:
        added: list[Future[None]] = []
        for record, future in batch:
            try:
                payload = encode_record(record)
            except (TypeError, ValueError, OverflowError) as error:
                self._fail([future], ValueError(f"call {record.call_id} cannot be encoded as msgpack: {error}"))
            else:
                self._segments.add(payload)  # at once, while it is in the CPU's cache
                added.append(future)
        try:
            num_bytes = self._segments.write()
        except OSError as error:
            refusal = _unavailable(self.folder, error)
            self._failure = str(refusal)
            self._fail(added, refusal)
        except Exception as error:  # the edge of this thread: every waiter gets an answer
            _logger.exception("the log writer of %s failed", self.folder)
            self._fail(added, StoreUnavailable(f"the log {self.folder} failed: {error!r}; see the server's log"))
        else:
            self._failure = None
            self._records += len(added)
            self._bytes += num_bytes
            for future in added:
                future.set_result(None)

    def _fail(self, futures: list[Future[None]], error: Exception) -> None:
        with self._gate:
            self._failed += len(futures)
        for future in futures:
            future.set_exception(error)


def lock_file(path: Path) -> int:
    """Lock a file; returns the descriptor that holds the lock. Raises BlockingIOError where another process has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def writer_is_alive(folder: Path) -> bool:
    """Whether a process writes the log in this folder now."""
    try:
        os.close(lock_file(folder / LOCK))
    except BlockingIOError:
        return True
    return False


def seal_left_open(log_dir: Path, disk: Disk) -> None:
    """Rename the open segments of dead writers; torn ends stay torn."""
    for segment in list_segments(log_dir):
        if segment.sealed:
            continue
        with contextlib.suppress(BlockingIOError):
            fd = lock_file(segment.folder / LOCK)
            try:
                with contextlib.suppress(FileNotFoundError):  # sealed since
                    disk.rename(segment.path, segment.path.with_suffix(SEALED_SUFFIX))
            finally:
                os.close(fd)


def _patient_lock(path: Path) -> int:
    """Lock a file that others lock for moments, to see whether its writer lives. Raises BlockingIOError."""
    deadline = time.monotonic() + LOOKED_AT_S
    while True:
        try:
            return lock_file(path)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _lock_folder(folder: Path, disk: Disk) -> int:
    try:
        disk.make_folder(folder)
        fd = _patient_lock(folder / LOCK)
        try:
            disk.sync_folder(folder)
        except OSError:
            os.close(fd)
            raise
        return fd
    except BlockingIOError as error:
        raise LogLocked(
            f"cannot write the log {folder}: another process holds it; give each process its own writer name"
        ) from error
    except OSError as error:
        raise _unavailable(folder, error) from error


def _unavailable(folder: Path, error: OSError) -> StoreUnavailable:
    advice = {
        errno.ENOSPC: "free space on it, or move store.root",
        errno.EDQUOT: "raise the quota, or move store.root",
        errno.EFBIG: "raise the limit on file sizes, or lower store.segment_bytes",
        errno.EROFS: "mount it writable, or move store.root",
        errno.EACCES: "let this user write there, or move store.root",
    }.get(error.errno or 0, "look at the system's log for the disk's errors")
    name = errno.errorcode.get(error.errno or 0, "error")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StoreUnavailable(f"cannot write the log {folder}: {reason} ({name}); {advice}")
