"""Watches what contained commands use together: memory, processes, disk. The kernel limits single processes only.

One reading of /proc serves all commands of a run. Invariant: a command over a limit is ended within one interval, by
its callback, once. Memory is what its processes hold that no file backs (RssAnon + RssShmem; pages shared after a fork
count for each process). Disk counts work, home, and files that are deleted but still open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from weir.agents.command.limits import CommandLimits, EndedBy
from weir.agents.command.session_folder import SessionFolder

INTERVAL_S = 0.25
DISK_SHARE = 0.05  # of the time may go into measuring disks


@dataclass(slots=True)
class _Watched:
    pid: int
    folder: SessionFolder
    limits: CommandLimits
    on_exceeded: Callable[[EndedBy], None]
    next_disk: float = 0.0


class Watch:
    """Watches the commands of one run for as long as there are any."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def over(self, pid: int, folder: SessionFolder, limits: CommandLimits, on_exceeded: Callable[[EndedBy], None]):  # type: ignore[no-untyped-def]
        """Watch the descendants of `pid` within the block; `on_exceeded` gets the first limit that they exceed."""
        self._watched[pid] = _Watched(pid, folder, limits, on_exceeded)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._watched.pop(pid, None)

    async def _run(self) -> None:
        while self._watched:
            for pid, exceeded in (await asyncio.to_thread(_look, list(self._watched.values()))).items():
                if (one := self._watched.pop(pid, None)) is not None:
                    one.on_exceeded(exceeded)
            await asyncio.sleep(INTERVAL_S)


def _look(watched: list[_Watched]) -> dict[int, EndedBy]:
    """The commands that exceed a limit, by the pid of their launcher, with the limit."""
    children = children_by_parent()
    exceeded = {one.pid: _exceeded(one, descendants(one.pid, children)) for one in watched}
    return {pid: limit for pid, limit in exceeded.items() if limit is not None}


def _exceeded(one: _Watched, pids: list[int]) -> EndedBy | None:
    if len(pids) > one.limits.processes:
        return EndedBy.PROCESSES
    if sum(_memory_bytes(pid) for pid in pids) > one.limits.memory_bytes:
        return EndedBy.MEMORY
    started = time.monotonic()
    if started < one.next_disk:
        return None
    try:
        num_bytes, num_files = one.folder.usage()
    except OSError:
        return EndedBy.DISK
    num_bytes += _deleted_bytes(pids)
    ended = time.monotonic()
    one.next_disk = ended + (ended - started) / DISK_SHARE
    return EndedBy.DISK if num_bytes > one.limits.disk_bytes or num_files > one.limits.files else None


def children_by_parent() -> dict[int, list[int]]:
    """All processes that this one can see, by their parent."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    return children


def descendants(pid: int, children: dict[int, list[int]]) -> list[int]:
    """The processes below `pid`."""
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _memory_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith((b"RssAnon:", b"RssShmem:")))
    return 0


def _deleted_bytes(pids: list[int]) -> int:
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                        found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())
