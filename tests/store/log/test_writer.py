"""The write-ahead log: acknowledged records are read back, whatever happens to the writer or the disk."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support_disk import WatchedDisk
from support_processes import PROCESSES, ended
from support_store_processes import write_beyond_the_limit
from support_stores import frame_bytes

from weir.store.config import StoreConfig
from weir.store.errors import LogClosed, LogFull, LogLocked, SchemaTooNew, StoreUnavailable
from weir.store.log.block_buffer import BLOCK
from weir.store.log.segment_format import HEADER, header_bytes, list_segments
from weir.store.log.writer import LogWriter, read_segment
from weir.store.records.call_record import SCHEMA_VERSION, CallRecord, encode_record

WAIT_S = 20.0


def names(config: StoreConfig) -> list[str]:
    """The ids of all readable calls, in the order of the log."""
    return [record.call_id for segment in list_segments(config.log_dir) for record in segment.read().records]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def log(config: StoreConfig) -> Iterator[LogWriter]:
    writer = LogWriter(config.root, "proxy", config)
    yield writer
    writer.close()


def test_an_acknowledged_record_is_readable_at_once_and_unchanged(
    log: LogWriter, config: StoreConfig, make_call: Any
) -> None:
    sent = make_call("a", [1, 2], [3, 4], versions=[(1, "6"), (1, "7")])
    log.append(sent).result(WAIT_S)
    [segment] = list_segments(config.log_dir)
    assert not segment.sealed
    contents = segment.read()
    assert (contents.records, contents.bytes_dropped, contents.reason) == ([sent], 0, None)
    assert log.stats.records == 1
    assert log.stats.bytes == len(frame_bytes(encode_record(sent)))


def test_close_seals_what_was_written_and_may_be_called_twice(config: StoreConfig, make_call: Any) -> None:
    log = LogWriter(config.root, "proxy", config)
    futures = [log.append(make_call(str(i), [i], [i])) for i in range(200)]
    log.close()
    log.close()
    assert [future.result() for future in futures] == [None] * 200
    assert names(config) == [str(i) for i in range(200)]
    assert all(segment.sealed for segment in list_segments(config.log_dir))
    with pytest.raises(LogClosed):
        log.append(make_call("late", [1], [1])).result()


def test_a_sealed_segment_has_no_zeros_left(config: StoreConfig, make_call: Any) -> None:
    log = LogWriter(config.root, "proxy", config)
    sent = make_call("a", [1], [2])
    log.append(sent).result(WAIT_S)
    log.close()
    [segment] = list_segments(config.log_dir)
    assert segment.path.stat().st_size == HEADER.size + len(frame_bytes(encode_record(sent)))


def test_segments_are_sealed_by_size(log: LogWriter, config: StoreConfig, make_call: Any) -> None:
    for i in range(10):
        log.append(make_call(str(i), range(12_000), [i])).result(WAIT_S)  # two of 48 kB do not fit into 64 KiB
    segments = list_segments(config.log_dir)
    assert [segment.sealed for segment in segments] == [True] * (len(segments) - 1) + [False]
    assert len(segments) == 10
    assert names(config) == [str(i) for i in range(10)]


def test_a_record_larger_than_a_segment_gets_a_segment_of_its_own(
    log: LogWriter, config: StoreConfig, make_call: Any
) -> None:
    big = make_call("big", range(50_000), [1])
    log.append(big).result(WAIT_S)
    assert list_segments(config.log_dir)[0].read().records == [big]


def test_segments_are_sealed_by_age_without_new_records(config: StoreConfig, make_call: Any) -> None:
    quick = config.model_copy(update={"seal_age_s": 0.01})
    log = LogWriter(quick.root, "proxy", quick)
    log.append(make_call("a", [1], [2])).result(WAIT_S)
    wait_until(lambda: list_segments(config.log_dir)[0].sealed)
    assert names(config) == ["a"]
    log.close()


class Watched(WatchedDisk):
    """A disk that reports each operation to a function."""

    def __init__(self, on: Callable[[str], None]) -> None:
        self._on = on

    def meet(self, operation: str) -> None:
        self._on(operation)


def test_fsync_mode_syncs_before_it_acknowledges(config: StoreConfig, make_call: Any) -> None:
    done: list[str] = []
    careful = config.model_copy(update={"durability": "fsync"})
    log = LogWriter(careful.root, "proxy", careful, Watched(done.append))
    log.append(make_call("a", [1], [2])).result(WAIT_S)
    done.clear()
    log.append(make_call("b", [1], [2])).result(WAIT_S)
    assert done == ["write", "sync"]
    log.close()
    assert names(config) == ["a", "b"]


def test_a_writer_name_belongs_to_one_process(log: LogWriter, config: StoreConfig) -> None:
    with pytest.raises(LogLocked, match="another process"):
        LogWriter(config.root, "proxy", config)
    with pytest.raises(ValueError, match="no name"):
        LogWriter(config.root, "../elsewhere", config)


def test_a_number_is_never_used_twice_although_segments_were_deleted(config: StoreConfig, make_call: Any) -> None:
    for expected in (1, 2):
        log = LogWriter(config.root, "proxy", config)
        log.append(make_call("a", [1], [2])).result(WAIT_S)
        log.close()
        [segment] = list_segments(config.log_dir)
        assert segment.seq == expected
        segment.path.unlink()


def test_a_record_that_cannot_be_encoded_fails_alone(log: LogWriter, config: StoreConfig, make_call: Any) -> None:
    good = log.append(make_call("good", [1], [2]))
    bad = log.append(make_call("bad", [1], [2], sampling={"x": object()}))
    later = log.append(make_call("later", [1], [2]))
    with pytest.raises(ValueError, match="bad"):
        bad.result(WAIT_S)
    assert good.result(WAIT_S) is None and later.result(WAIT_S) is None
    assert names(config) == ["good", "later"]
    assert log.stats.failed == 1


def test_a_waiter_that_goes_away_does_not_take_the_record_with_it(
    log: LogWriter, config: StoreConfig, make_call: Any
) -> None:
    assert log.append(make_call("a", [1], [2])).cancel() is False
    log.close()
    assert names(config) == ["a"]


def test_a_full_queue_refuses_and_says_so(config: StoreConfig, make_call: Any) -> None:
    slow, entered = threading.Event(), threading.Event()

    def wait(operation: str) -> None:
        if operation == "write":
            entered.set()
            slow.wait(WAIT_S)

    small = config.model_copy(update={"queue_records": 2})
    log = LogWriter(small.root, "proxy", small, Watched(wait))
    waiting = [log.append(make_call("0", [1], [2]))]
    assert entered.wait(WAIT_S)  # the writer is busy with it, and the queue is empty
    waiting += [log.append(make_call(str(i), [1], [2])) for i in (1, 2)]
    refused = log.append(make_call("3", [1], [2]))
    with pytest.raises(LogFull, match="queue_records"):
        refused.result(0)
    assert (log.stats.failed, log.stats.queue_depth) == (1, 2)
    slow.set()
    assert [future.result(WAIT_S) for future in waiting] == [None] * 3
    log.close()
    assert names(config) == ["0", "1", "2"]


# torn and damaged segments


def write_segment(path: Path, records: list[CallRecord]) -> bytes:
    data = header_bytes(1) + b"".join(frame_bytes(encode_record(record)) for record in records)
    path.write_bytes(data)
    return data


@pytest.mark.parametrize(
    ("damage", "kept", "dropped", "reason"),
    [
        (lambda whole, last: whole[:-1], 2, lambda last: last - 1, "ends before them"),
        (lambda whole, last: whole[: len(whole) - last + 2], 2, lambda last: 2, "ends inside the frame"),
        (lambda whole, last: whole[:-1] + b"\xff", 2, lambda last: last, "checksum"),
        (lambda whole, last: whole[: len(whole) - last // 2] + bytes(500), 2, lambda last: last - last // 2, "ch"),
        (lambda whole, last: whole + struct.pack("<II", 99, 0), 3, lambda last: 4 - 3, "ends before them"),
        (lambda whole, last: whole + bytes(4096), 3, lambda last: 0, None),
        (lambda whole, last: whole[:20], 0, lambda last: 13, "header has 20 bytes"),
        (lambda whole, last: bytes(100), 0, lambda last: 0, "before it wrote the header"),
        (lambda whole, last: b"X" + whole[1:], 0, None, "not a log segment"),
        (lambda whole, last: whole[:13] + b"X" + whole[14:], 0, None, "header does not match"),
        (lambda whole, last: b"", 0, lambda last: 0, None),
    ],
)
def test_reading_stops_at_the_first_bad_frame_and_says_what_it_leaves(
    tmp_path: Path, make_call: Any, damage: Any, kept: int, dropped: Any, reason: str | None
) -> None:
    path = tmp_path / "00000001.wal"
    records = [make_call(str(i), range(100 + i), [1, 2, 3]) for i in range(3)]
    whole = write_segment(path, records)
    last = len(frame_bytes(encode_record(records[-1])))
    damaged = damage(whole, last)
    path.write_bytes(damaged)
    contents = read_segment(path)
    assert contents.records == records[:kept]
    assert contents.bytes_dropped == (len(damaged) if dropped is None else dropped(last))
    assert contents.reason is None if reason is None else reason in str(contents.reason)


def test_a_whole_frame_that_is_no_record_does_not_hide_those_after_it(tmp_path: Path, make_call: Any) -> None:
    path = tmp_path / "00000001.wal"
    first, last = make_call("first", [1], [2]), make_call("last", [1], [2])
    alien = frame_bytes(b"\x81\xa1a\x01")
    path.write_bytes(header_bytes(1) + frame_bytes(encode_record(first)) + alien + frame_bytes(encode_record(last)))
    contents = read_segment(path)
    assert (contents.records, contents.bytes_dropped) == ([first, last], len(alien))
    assert "not a call record" in str(contents.reason)


def test_a_newer_schema_is_refused_in_header_and_record(tmp_path: Path, make_call: Any) -> None:
    path = tmp_path / "00000001.wal"
    path.write_bytes(header_bytes(1, schema=SCHEMA_VERSION + 1))
    with pytest.raises(SchemaTooNew, match=f"schema version {SCHEMA_VERSION + 1}, this Weir knows up to"):
        read_segment(path)
    newer = make_call("a", [1], [2], schema=SCHEMA_VERSION + 1)
    path.write_bytes(header_bytes(1) + frame_bytes(encode_record(newer)))
    with pytest.raises(SchemaTooNew):
        read_segment(path)


# disks that refuse


class Refusing(WatchedDisk):
    """A disk that refuses one kind of operation while `number` is set; of a write, two blocks arrive first."""

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.number: int | None = None

    def meet(self, operation: str) -> None:
        if self.number is not None and operation == self.operation:
            raise OSError(self.number, os.strerror(self.number))

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        if self.operation == "write" and self.number is not None and len(data) > 2 * BLOCK:
            return os.pwrite(fd, data[: 2 * BLOCK], offset)
        return super().write(fd, data, offset)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_what_fails_halfway_is_cut_back_and_the_next_one_is_readable(
    config: StoreConfig, make_call: Any, operation: str
) -> None:
    disk = Refusing(operation)
    careful = config.model_copy(update={"durability": "fsync"})
    log = LogWriter(careful.root, "proxy", careful, disk)
    log.append(make_call("before", [1], [2])).result(WAIT_S)
    disk.number = errno.ENOSPC
    with pytest.raises(StoreUnavailable, match=r"No space left on device \(ENOSPC\); free space"):
        log.append(make_call("torn", range(5000), [2])).result(WAIT_S)
    disk.number = None
    log.append(make_call("after", [1], [2])).result(WAIT_S)
    log.close()
    assert names(config) == ["before", "after"]
    assert [segment.read().reason for segment in list_segments(config.log_dir)] == [None, None]
    assert (log.stats.records, log.stats.failed) == (2, 1)


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EDQUOT])
def test_every_refusal_of_the_disk_names_itself(config: StoreConfig, make_call: Any, number: int) -> None:
    disk = Refusing("reserve")
    log = LogWriter(config.root, "proxy", config, disk)
    disk.number = number
    with pytest.raises(StoreUnavailable, match=errno.errorcode[number]):
        log.append(make_call("a", [1], [2])).result(WAIT_S)
    assert errno.errorcode[number] in str(log.stats.failure)
    disk.number = None
    wait_until(lambda: log.stats.failure is None)
    assert list_segments(config.log_dir) == []
    log.append(make_call("b", [1], [2])).result(WAIT_S)
    log.close()
    assert names(config) == ["b"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if not made or made.returncode:
        pytest.skip("this user may not mount a tmpfs")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_on_a_full_disk_the_future_fails_and_after_making_room_the_log_goes_on(
    small_disk: Path, make_call: Any
) -> None:
    config = StoreConfig(root=small_disk, segment_bytes=2**18)
    log = LogWriter(config.root, "proxy", config)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(300_000))
    acknowledged = []
    for i in range(100):
        try:
            log.append(make_call(str(i), range(5000), [1])).result(WAIT_S)
        except StoreUnavailable as error:
            assert "ENOSPC" in str(error)
            break
        acknowledged.append(str(i))
    assert 20 < len(acknowledged) < 60
    filler.unlink()
    log.append(make_call("after", [1], [2])).result(WAIT_S)
    log.close()
    assert names(config) == [*acknowledged, "after"]


def test_a_limit_on_file_sizes_fails_the_future_and_not_the_process(config: StoreConfig, make_call: Any) -> None:
    large = config.model_copy(update={"segment_bytes": 2**20})
    results = PROCESSES.SimpleQueue()
    assert ended(write_beyond_the_limit, large, make_call("a", [1], [2]), results) == 0
    message = results.get()
    assert "EFBIG" in message and "store.segment_bytes" in message
    assert names(config) == ["a"]


# readers and crashes


def test_readers_see_a_growing_prefix_while_a_writer_writes(
    log: LogWriter, config: StoreConfig, make_call: Any
) -> None:
    done = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        for i in range(1500):
            log.append(make_call(str(i), range(200), [i])).result(WAIT_S)
            written = i + 1
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    looks = 0
    while not done.is_set() or looks == 0:
        before = written
        seen = names(config)
        assert seen == [str(i) for i in range(len(seen))]
        assert len(seen) >= before
        looks += 1
    thread.join()
    assert len(names(config)) == 1500
