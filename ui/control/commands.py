"""The `weir` commands that actions run: each in a process of its own, its output kept, its end written in the audit.

Invariants: a command ends with this server, however that happens: the same command can take up again what it did. At
most `AT_ONCE` run, and of those that train or publish only one. Output is kept to its last `KEPT_CHARACTERS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weir.store.catalog.audit.actions import end_action
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.parent_death import end_with_parent
from weir.ui.errors import Unavailable

AT_ONCE = 4
KEPT_CHARACTERS = 16_000
STOPPING_S = 30.0
WEIR = (sys.executable, "-m", "weir.scripts.cli.main")


@dataclass(slots=True, eq=False)
class _Running:
    process: asyncio.subprocess.Process
    exclusive: bool
    output: str = ""
    stopped: bool = False  # by this server
    end: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class Commands:
    """The commands of one page server."""

    catalog: Catalog
    store: StoreConfig
    config_path: Path | None
    _running: dict[str, _Running] = field(default_factory=dict)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)  # one question at a time: a dry run loads torch

    def shown(self, arguments: Sequence[str]) -> str:
        """A command as a person would type it."""
        return shlex.join(["weir", *arguments, *self._options()])

    def output_of(self, action_id: str) -> str | None:
        """What a running command has said so far; None where it is not running."""
        running = self._running.get(action_id)
        return None if running is None else running.output

    def require_free(self, *, exclusive: bool) -> None:
        """Raise Unavailable where no other command may be started now."""
        if len(self._running) >= AT_ONCE:
            raise Unavailable(f"{AT_ONCE} commands of this page are running already: wait until one of them has ended")
        if exclusive and any(one.exclusive for one in self._running.values()):
            raise Unavailable("a command that trains or publishes is running already: wait until it has ended")

    async def ask(self, arguments: Sequence[str], limit_s: float) -> tuple[int, str]:
        """Run a command that changes nothing; its exit status and output. Raises Unavailable if it takes too long."""
        async with self._asking:
            return await self._ask(arguments, limit_s)

    async def _ask(self, arguments: Sequence[str], limit_s: float) -> tuple[int, str]:
        process = await self._started(arguments)
        running = _Running(process, exclusive=False)
        try:
            async with asyncio.timeout(limit_s):
                await _read(running)
                return await process.wait(), running.output
        except TimeoutError as error:
            raise Unavailable(
                f"`{self.shown(arguments)}` has not ended in {limit_s:g} s: run it in a terminal"
            ) from error
        finally:
            await _stop(process)

    async def start(self, action_id: str, arguments: Sequence[str], *, exclusive: bool) -> None:
        """Start the command of an action that is in the audit; its end goes there too. Raises Unavailable."""
        self.require_free(exclusive=exclusive)
        running = self._running[action_id] = _Running(await self._started(arguments), exclusive)
        running.end = asyncio.create_task(self._follow(action_id, running))

    async def close(self) -> None:
        """Stop what runs, and write its end down. May be called twice."""
        running = list(self._running.values())
        for one in running:
            one.stopped = True
        await asyncio.gather(*(_stop(one.process) for one in running))
        await asyncio.gather(*(one.end for one in running if one.end is not None))

    async def _follow(self, action_id: str, running: _Running) -> None:
        try:
            await _read(running)
            status = await running.process.wait()
            if running.stopped:
                said = "\n(stopped, because the page's server ended; the same command takes it up again)"
            else:
                said = "" if status == 0 else f"\n(exit status {status})"
            message = (running.output + said).strip()
            await asyncio.to_thread(end_action, self.catalog, action_id, done=status == 0, message=message)
        finally:
            del self._running[action_id]

    async def _started(self, arguments: Sequence[str]) -> asyncio.subprocess.Process:
        more = {"WEIR_STORE__ROOT": str(self.store.root), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
        if self.store.catalog_url:
            more["WEIR_STORE__CATALOG_URL"] = self.store.catalog_url
        return await asyncio.create_subprocess_exec(
            *WEIR,
            *arguments,
            *self._options(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | more,
            start_new_session=True,
            preexec_fn=functools.partial(end_with_parent, signal.SIGTERM, parent_pid=os.getpid()),
        )

    def _options(self) -> list[str]:
        return ["--config", str(self.config_path)] if self.config_path else []


async def _read(running: _Running) -> None:
    stream = running.process.stdout
    assert stream is not None
    while chunk := await stream.read(65_536):
        running.output = (running.output + chunk.decode(errors="replace"))[-KEPT_CHARACTERS:]


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End a process and what it started, at first by SIGTERM."""
    if process.returncode is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOPPING_S)
            return
