"""The log's figures of `weir bench store`: append throughput, and how close it comes to the disk's limit.

Calls of 28 KB (4,096 prompt and 1,024 output tokens) are appended with fsync in groups of 64, one group after the
other. The limit is the same bytes written and synced by plain system calls, through the page cache or past it,
whichever is faster. Both alternate, so that other load on the disk affects them alike. The measurement is repeated on a
slow disk: the same one, with every fdatasync delayed to at least two milliseconds (in this process, over the real
file).
"""

from __future__ import annotations

import mmap
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from weir.scripts.bench.store.calls import long_calls
from weir.store.config import StoreConfig
from weir.store.disk import SYSTEM_DISK, Disk, SystemDisk
from weir.store.log.block_buffer import whole_blocks
from weir.store.log.writer import LogWriter
from weir.store.records.call_record import encode_record

GROUP = 64
NUM_GROUPS = 96  # several segments
NUM_HANDOFFS = 4000
NUM_SYNCS = 200
SLOW_SYNC_S = 0.002


class SlowDisk(SystemDisk):
    """The real disk; a sync takes at least as long as on a disk with 500 syncs per second."""

    def sync(self, fd: int) -> None:
        ends = time.perf_counter() + SLOW_SYNC_S
        super().sync(fd)
        time.sleep(max(0.0, ends - time.perf_counter()))


def measure_log(root: Path) -> dict[str, float]:
    """All figures of the log."""
    root.mkdir(parents=True, exist_ok=True)
    os.sync()  # earlier writes of other processes are not measured
    figures = measure_appends(root / "own", SYSTEM_DISK) | measure_syncs(root / "syncs", SYSTEM_DISK)
    os.sync()
    slow = measure_appends(root / "slow", SlowDisk()) | measure_syncs(root / "slow-syncs", SlowDisk())
    names = ("append_per_s", "append_over_disk_limit", "fdatasync_per_s")
    return figures | {f"slow_{name}": slow[name] for name in names} | measure_handoff(root / "handoff")


def measure_appends(root: Path, disk: Disk) -> dict[str, float]:
    """Calls per second in groups of 64 with fsync, and the disk's limit for the same bytes."""
    root.mkdir()
    groups = [list(long_calls(GROUP, seed)) for seed in range(4)]
    data = [b"".join(map(encode_record, group)) for group in groups]
    log = LogWriter(root, "bench", StoreConfig(root=root, durability="fsync"), disk)

    def append(number: int) -> None:
        for future in [log.append(call) for call in groups[number % len(groups)]]:
            future.result()

    ways = {
        "append": append,
        "buffered": _bare(disk, root / "buffered", 0, data),
        "direct": _bare(disk, root / "direct", os.O_DIRECT, data),
    }
    append(0)
    spent = dict.fromkeys(ways, 0.0)
    for number in range(NUM_GROUPS):
        for name, way in ways.items():
            started = time.perf_counter()
            way(number)
            spent[name] += time.perf_counter() - started
    log.close()
    per_s = {name: NUM_GROUPS * GROUP / seconds for name, seconds in spent.items()}
    limit = max(per_s["buffered"], per_s["direct"])
    return {
        "append_bytes": statistics.mean(map(len, data)) / GROUP,
        "append_per_s": per_s["append"],
        "disk_limit_per_s": limit,
        "append_over_disk_limit": per_s["append"] / limit,
    }


def _bare(disk: Disk, path: Path, direct: int, data: list[bytes]) -> Callable[[int], None]:
    """A function that writes and syncs one group of bytes per call, consecutively in a preallocated file."""
    blocks = [mmap.mmap(-1, whole_blocks(len(one))) for one in data]
    for block, one in zip(blocks, data, strict=True):
        block.write(one)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | direct, 0o644)
    except OSError:  # no direct writes here: buffered ones set the limit
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.posix_fallocate(fd, 0, NUM_GROUPS * max(map(len, blocks)))
    os.fsync(fd)
    offset = 0

    def write(number: int) -> None:
        nonlocal offset
        block = blocks[number % len(blocks)]
        assert os.pwrite(fd, block, offset) == len(block)
        disk.sync(fd)
        offset += len(block)

    return write


def measure_syncs(path: Path, disk: Disk) -> dict[str, float]:
    """Small synced writes per second: what kind of disk this is."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.posix_fallocate(fd, 0, NUM_SYNCS * 4096)
    os.fsync(fd)
    started = time.perf_counter()
    for i in range(NUM_SYNCS):
        os.pwrite(fd, bytes(4096), i * 4096)
        disk.sync(fd)
    per_s = NUM_SYNCS / (time.perf_counter() - started)
    os.close(fd)
    return {"fdatasync_per_s": per_s}


def measure_handoff(root: Path) -> dict[str, float]:
    """Microseconds that `append` blocks its caller, at about 500 calls per second."""
    log = LogWriter(root, "bench", StoreConfig(root=root))
    taken = []
    for call in long_calls(NUM_HANDOFFS, seed=0):
        started = time.perf_counter()
        future = log.append(call)
        taken.append((time.perf_counter() - started) * 1e6)
        future.result()
        time.sleep(0.0015)
    log.close()
    quantiles = statistics.quantiles(taken, n=100)
    return {"handoff_p50_us": quantiles[49], "handoff_p99_us": quantiles[98]}
