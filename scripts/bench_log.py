"""`weir bench store`, first part: what the log takes from its callers, and how near it comes to the disk's own limit.

Calls of 28 KB (4,096 prompt and 1,024 output tokens) come in groups of 64 that wait for each other, with fsync. The
limit is the same bytes written and synced by nothing but system calls, through the page cache or past it, whichever is
faster. Groups take turns, so that a disk that others use too is as fast for the one as for the other.
"""

from __future__ import annotations

import json
import mmap
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from weir.store.block_buffer import whole_blocks
from weir.store.config import StoreConfig
from weir.store.log import LogWriter
from weir.store.records import (
    CallRecord,
    CaptureLevel,
    FinishReason,
    SessionSource,
    VersionSpan,
    encode_record,
    pack_ids,
    pack_logprobs,
)

GROUP = 64
NUM_GROUPS = 96  # several segments
PROMPT_TOKENS = 4096
OUTPUT_TOKENS = 1024
NUM_HANDOFFS = 4000
NUM_SYNCS = 200


def measure_log(root: Path) -> dict[str, float]:
    """The figures of the log."""
    root.mkdir(parents=True, exist_ok=True)
    return measure_appends(root) | measure_syncs(root / "syncs") | measure_handoff(root / "handoff")


def measure_appends(root: Path) -> dict[str, float]:
    """Calls a second in groups of 64 with fsync, and what the disk takes of the same bytes."""
    groups = [list(_calls(group)) for group in range(4)]
    data = [b"".join(map(encode_record, group)) for group in groups]
    log = LogWriter(root / "appends", "bench", StoreConfig(root=root / "appends", durability="fsync"))

    def append(number: int) -> None:
        for future in [log.append(call) for call in groups[number % len(groups)]]:
            future.result()

    ways = {
        "append": append,
        "buffered": _bare(root / "buffered", 0, data),
        "direct": _bare(root / "direct", os.O_DIRECT, data),
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


def _calls(group: int) -> Iterator[CallRecord]:
    rng = np.random.default_rng(group)
    message = {"role": "assistant", "content": "x" * 350}
    for i in range(GROUP):
        yield CallRecord(
            call_id=f"call_{group:08d}_{i:02d}",
            session_id=f"session_{i:08d}",
            session_source=SessionSource.PATH,
            group_id="group",
            dialect="chat",
            level=CaptureLevel.TOKENS,
            model="weir",
            stream=False,
            started_us=1_700_000_000_000_000,
            finished_us=1_700_000_000_900_000,
            prompt_ids=pack_ids(rng.integers(0, 50_000, PROMPT_TOKENS, np.int32)),
            output_ids=pack_ids(rng.integers(0, 50_000, OUTPUT_TOKENS, np.int32)),
            output_logprobs=pack_logprobs(-rng.exponential(0.4, OUTPUT_TOKENS).astype(np.float32)),
            spans=(VersionSpan(0, OUTPUT_TOKENS, "1"),),
            finish=FinishReason.STOP,
            request=json.dumps({"model": "weir", "messages": [message] * 8}).encode(),
            answer=json.dumps(message).encode(),
        )


def _bare(path: Path, direct: int, data: list[bytes]) -> Callable[[int], None]:
    """Writes and syncs one group of bytes each time it is called, one behind the other in a file with room for all."""
    blocks = [mmap.mmap(-1, whole_blocks(len(one))) for one in data]
    for block, one in zip(blocks, data, strict=True):
        block.write(one)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | direct, 0o644)
    except OSError:  # no direct writes here: the limit is that of buffered ones
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.posix_fallocate(fd, 0, NUM_GROUPS * max(map(len, blocks)))
    os.fsync(fd)
    offset = 0

    def write(number: int) -> None:
        nonlocal offset
        block = blocks[number % len(blocks)]
        assert os.pwrite(fd, block, offset) == len(block)
        os.fdatasync(fd)
        offset += len(block)

    return write


def measure_syncs(path: Path) -> dict[str, float]:
    """Small writes that the disk syncs in a second: what kind of disk this is."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.posix_fallocate(fd, 0, NUM_SYNCS * 4096)
    os.fsync(fd)
    started = time.perf_counter()
    for i in range(NUM_SYNCS):
        os.pwrite(fd, bytes(4096), i * 4096)
        os.fdatasync(fd)
    per_s = NUM_SYNCS / (time.perf_counter() - started)
    os.close(fd)
    return {"fdatasync_per_s": per_s}


def measure_handoff(root: Path) -> dict[str, float]:
    """Microseconds that `append` takes from its caller, at some 500 calls a second."""
    calls = list(_calls(0))
    log = LogWriter(root, "bench", StoreConfig(root=root))
    taken = []
    for i in range(NUM_HANDOFFS):
        started = time.perf_counter()
        future = log.append(calls[i % GROUP])
        taken.append((time.perf_counter() - started) * 1e6)
        future.result()
        time.sleep(0.0015)
    log.close()
    quantiles = statistics.quantiles(taken, n=100)
    return {"handoff_p50_us": quantiles[49], "handoff_p99_us": quantiles[98]}
