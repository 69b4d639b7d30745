"""Processes that append to a store and look after it until they are killed: `support_crashes.py ROOT SEED ROUNDS`.

In each round a writer and a second process work at the same time: a compactor, or one that takes out old groups,
collects garbage and repairs. Both end by SIGKILL: at an operation on the disk or a commit of the catalog that the seed
chose, in the middle of a write too, or at any moment from outside. They are forked from this process, which has
everything loaded and no threads. Beside the store lie `acknowledged`, the names of calls that were, one a line, and
`killed`, where processes were hit.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

import sqlalchemy as sa
from support_disk import WatchedDisk

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.log.block_buffer import BLOCK
from weir.store.log.writer import LogWriter, writer_is_alive
from weir.store.maintenance.compact import compact
from weir.store.maintenance.upkeep import collect_garbage
from weir.store.maintenance.verify import verify
from weir.store.records.call_record import (
    CallRecord,
    CaptureLevel,
    FinishReason,
    SessionSource,
    VersionSpan,
    pack_ids,
    pack_logprobs,
)

WRITER = "proxy"
GROUPS = ("g0", "g1", "g2")
GOING = "going"  # the group that retention takes out
UPKEEP_TURNS = 3  # after so many a process that looks after a store ends like the others
STORE_ROUNDS = 25  # after so many a new store is begun


# Where processes are hit: at an operation, the first up to that many times that it is done.
WRITER_POINTS = {"open": 8, "reserve": 5, "write": 40, "sync": 12, "truncate": 4, "rename": 4}
# of retention (which writes files anew), merging, garbage collection and repair
UPKEEP_POINTS = {"open": 6, "write": 6, "sync": 6, "rename": 6, "sync_folder": 9, "commit": 24, "unlink": 12}
COMPACTOR_POINTS = {"open": 2, "write": 2, "sync": 2, "rename": 2, "sync_folder": 3, "commit": 8, "unlink": 4}
OPERATIONS = 300  # after so many a process ends in any case
Point = tuple[str, int]  # an operation, and how often it was done before


class KillingDisk(WatchedDisk):
    """Kills its process at a point; at none when that is None."""

    def __init__(self, point: Point | None, tell: Callable[[str], None], rng: random.Random) -> None:
        self._point, self._tell, self._rng = point, tell, rng
        self._done: Counter[str] = Counter()

    def meet(self, operation: str) -> None:
        if self._is_due(operation):
            self._die(operation)

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        if self._is_due("write"):
            torn = self._rng.randrange(len(data) + 1)
            os.pwrite(fd, data[: torn - torn % BLOCK], offset)
            self._die("write")
        return os.pwrite(fd, data, offset)

    def _is_due(self, operation: str) -> bool:
        done = self._done[operation]
        self._done[operation] += 1
        return self._point is not None and (self._point == (operation, done) or self._done.total() == OPERATIONS)

    def _die(self, operation: str) -> None:
        self._tell(operation)
        os.kill(os.getpid(), signal.SIGKILL)


def crash_config(root: Path, seed: int) -> StoreConfig:
    """The settings of a store: both durabilities take turns."""
    durability = "fsync" if seed % 2 else "os"
    return StoreConfig(root=root, durability=durability, segment_bytes=2**16, segment_grace_s=0)


def retiring(config: StoreConfig) -> StoreConfig:
    """Every group leaves at once that is not registered: `GOING`."""
    return config.model_copy(update={"retention_days": 1e-12})


def register_groups(config: StoreConfig) -> None:
    """All groups but `GOING` wait for a round, which keeps them."""
    catalog = Catalog.open(config)
    for group_id in GROUPS:
        catalog.register_session(group_id, group_id, task=None, group_size=9, metadata={}, key_hash=None)
    catalog.close()


def crash_call(name: str) -> CallRecord:
    """The call of a name; the same each time, so that what was stored can be compared."""
    rng = random.Random(name)
    group_id = rng.choice((*GROUPS, GOING))
    output = [rng.randrange(1000) for _ in range(rng.randrange(1, 30))]
    return CallRecord(
        call_id=name,
        session_id="going" if group_id == GOING else "s",
        session_source=SessionSource.PATH,
        group_id=group_id,
        dialect="chat",
        level=CaptureLevel.TOKENS,
        model="small",
        stream=False,
        started_us=1,
        finished_us=2,
        prompt_ids=pack_ids([rng.randrange(1000) for _ in range(rng.randrange(1, 3000))]),
        output_ids=pack_ids(output),
        output_logprobs=pack_logprobs([rng.random() for _ in output]),
        spans=(VersionSpan(0, len(output), "0"),),
        finish=FinishReason.STOP,
        request=b"{}",
    )


def write_until_killed(config: StoreConfig, disk: KillingDisk, acknowledged: int, prefix: str) -> None:
    """Append in groups, and note each call when its future resolves."""
    log = LogWriter(config.root, WRITER, config, disk)
    for group in itertools.count():
        waiting: list[Future[None]] = []
        for i in range(1 + group % 7):
            name = f"{prefix}-{group}-{i}"
            waiting.append(log.append(crash_call(name)))
            waiting[-1].add_done_callback(lambda _, name=name: os.write(acknowledged, name.encode() + b"\n"))
        for future in waiting:
            future.result()


def compact_until_killed(config: StoreConfig, disk: KillingDisk) -> None:
    """Compact again and again; when there is nothing left to do, this process ends like the others."""
    sa.event.listen(sa.Engine, "commit", lambda _: disk.meet("commit"))
    while compact(config, disk=disk).segments > 0 or writer_is_alive(config.log_dir / WRITER):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def look_after_until_killed(config: StoreConfig, disk: KillingDisk) -> None:
    """Compact, take out the group that is to leave, collect garbage and repair, again and again."""
    sa.event.listen(sa.Engine, "commit", lambda _: disk.meet("commit"))
    for _ in range(UPKEEP_TURNS):
        compact(config, disk=disk)
        collect_garbage(retiring(config), disk)
        verify(config, disk, fix=True)
    os.kill(os.getpid(), signal.SIGKILL)


def forked(work: Callable[[], None]) -> int:
    """The id of a child that does the work; should it end otherwise than by a kill, it says why."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return pid


def round_of_kills(config: StoreConfig, rng: random.Random, prefix: str) -> None:
    """A writer, one that looks after the store, and the end of both. Raises AssertionError: one ended by itself."""
    config.root.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    acknowledged, killed = (os.open(config.root / name, flags, 0o644) for name in ("acknowledged", "killed"))
    by_time = rng.random() < 0.3

    def disk(who: str, points: Mapping[str, int]) -> KillingDisk:
        operation = rng.choice(list(points))
        point = None if by_time else (operation, rng.randrange(points[operation]))
        return KillingDisk(point, lambda operation: os.write(killed, f"{who} {operation}\n".encode()), rng)

    writer = disk("writer", WRITER_POINTS)
    pids = [forked(lambda: write_until_killed(config, writer, acknowledged, prefix))]
    if rng.random() < 0.5:
        compactor = disk("compactor", COMPACTOR_POINTS)
        pids.append(forked(lambda: compact_until_killed(config, compactor)))
    else:
        upkeep = disk("upkeep", UPKEEP_POINTS)
        pids.append(forked(lambda: look_after_until_killed(config, upkeep)))
    if by_time:
        time.sleep(rng.uniform(0.01, 0.2))
        for pid in rng.sample(pids, 2):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"a process of {prefix} failed"
    os.close(acknowledged)
    os.close(killed)


def main(folder: Path, seed: int, num_rounds: int) -> None:
    rng = random.Random(seed)
    for number in range(num_rounds):
        store = number // STORE_ROUNDS
        config = crash_config(folder / str(store), store)
        if number % STORE_ROUNDS == 0:
            register_groups(config)
        round_of_kills(config, rng, str(number))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
