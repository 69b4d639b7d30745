"""Processes of this machine: `weir train` starts them itself, and again when they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from weir.cluster.config import ClusterMember
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.placement import num_gpus
from weir.scripts.launch.servers import start, stop
from weir.scripts.launch.settings import Settings
from weir.scripts.live.processes.child import Child
from weir.scripts.live.processes.member_engine import MemberEngine
from weir.scripts.live.processes.processes import Order, ProcessFailed, Worker
from weir.store.errors import StoreError


class LocalProcesses:
    """Children of this process."""

    def __init__(self, settings: Settings, config_path: Path | None, members: Mapping[str, ClusterMember]) -> None:
        """`members` are those of the run, which others may join. Raises `UsageError` where they need too many GPUs."""
        self._settings, self._config_path, self._members = settings, config_path, members
        self._gpus = list(settings.placement.serve or range(num_gpus() or 0))
        wanted = sum(member.gpus for member in members.values() if member.is_placed)
        if wanted > len(self._gpus):
            raise UsageError(f"members without a url are to have {wanted} GPUs, and {self._left()}")

    def open(self) -> None:
        """Nothing is to be reached."""

    async def start(self, order: Order, members: Sequence[str]) -> Worker:
        """Start a child, whichever members train."""
        return await Child.start(order)

    def engine(self, member: str) -> LocalEngine:
        """The engine of a member, on GPUs that no other has. Raises `ProcessFailed` where they are too few."""
        count = self._members[member].gpus
        if count > len(self._gpus):
            raise ProcessFailed(f"it is to have {count} GPUs, and {self._left()}")
        gpus, self._gpus = self._gpus[:count], self._gpus[count:]
        engine = MemberEngine(settings=self._settings, config_path=self._config_path, member=self._members[member])
        return LocalEngine(engine, gpus, self._settings.cluster.retry_s)

    async def close(self) -> None:
        """Nothing is left."""

    def _left(self) -> str:
        return (
            f"{len(self._gpus)} are left of placement.serve, or of this machine: name more of them there, or lower "
            "cluster.members.gpus"
        )


class LocalEngine:
    """An engine that is a child; looking for its address starts it."""

    def __init__(self, engine: MemberEngine, gpus: Sequence[int], retry_s: float) -> None:
        self._engine, self._gpus, self._retry_s = engine, gpus, retry_s
        self._process: subprocess.Popen[bytes] | None = None
        self._url: str | None = None
        self._again_s = 0.0

    async def url(self) -> str | None:
        """Where it listens; it is started first where it does not run. Raises `UsageError` before the first start."""
        if self._process is None:
            return await self._started()
        if (status := self._process.poll()) is not None:
            self._process = None
            raise ProcessFailed(f"it ended with status {status}{self._engine.last_words()}")
        return self._url

    async def _started(self) -> str | None:
        if time.monotonic() < self._again_s:
            return None
        self._again_s = time.monotonic() + self._retry_s
        try:
            server, url = await asyncio.to_thread(self._engine.server, self._engine.settings.engine.host, self._gpus)
            self._process = start(server)  # in this thread: it ends with the thread that started it
        except (UsageError, StoreError, OSError) as error:
            if self._url is None and isinstance(error, UsageError):
                raise
            raise ProcessFailed(str(error)) from error
        self._url = url
        return url

    def kill(self) -> None:
        """Kill it with all its processes."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End it."""
        if self._process is not None:
            await asyncio.to_thread(stop, self._process)
