"""A process of this machine: requests in, reports out, one JSON object a line; it ends with its parent.

Invariant: a child never outlives its parent; what it writes to stderr is in its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from weir.scripts.live.processes.processes import Order
from weir.store.parent_death import end_with_parent

LINE_BYTES = 2**24  # of the longest report: a round's groups
STOP_LIMIT_S = 60.0


class Child:
    """One running process; `start` makes it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, order: Order) -> Child:
        """Start it."""
        order.log_path.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
        with order.log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                order.module,
                *order.arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                limit=LINE_BYTES,
                start_new_session=True,
                preexec_fn=functools.partial(end_with_parent, parent_pid=os.getpid()),
            )
        return cls(process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, request: Any) -> None:
        """Send a request; to a process that has ended nothing is sent, and `reports` ends."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")

    async def reports(self) -> AsyncIterator[Any]:
        """What it reports, until it ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.endswith(b"\n"):  # else it was killed while it wrote
                yield json.loads(line)

    def bind(self, cores: Sequence[int]) -> None:
        """Bind all its threads and processes to cores of this machine; none: to all that this process may use."""
        wanted = set(cores) or os.sched_getaffinity(0)
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            for each in (process, *process.children(recursive=True)):
                bind_threads(each.pid, wanted)

    async def is_at(self, members: Sequence[str]) -> bool:
        """True: there is one machine."""
        return True

    async def close(self) -> str:
        """End its input, wait for its end, and kill it after a while; returns its status, in words."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            return f"status {await asyncio.wait_for(self._process.wait(), STOP_LIMIT_S)}"
        self.kill()
        return f"status {await self._process.wait()}"

    def kill(self) -> None:
        """Kill it now. May be called twice."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # Process.kill would take its status from who waits for it


def bind_threads(pid: int, cores: set[int]) -> None:
    """Bind the threads that a process has; those that it starts later inherit it. One that has ended is left alone."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)
