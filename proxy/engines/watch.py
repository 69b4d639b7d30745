"""Engines that died or came back with old weights: out of the router's rotation, and in again once they are current.

Routers run without health checks, because a paused engine would look dead to them. Of all processes that serve calls
through one router on this machine, one watches: it holds a file's lock. Invariants: an engine goes in only when it
answers and does not report an older version than the current one; while the gate is not open nothing is done, because
somebody exchanges weights; what is out is kept in a file, with the reason, for the next watcher. Not here: how routers
and engines are asked (rotation.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from weir.proxy.engines.gate import Gate
from weir.proxy.engines.router import Answer, Probe, Rotation, RotationFailed
from weir.store.catalog.catalog import Catalog
from weir.store.log.writer import lock_file
from weir.store.records.ids import new_id

SILENT_CHECKS = 3  # an engine that is only slow is not taken for dead
LOAD_LIMIT_S = 300.0
AGAIN_S = 30.0  # between two tries to load weights into one engine
_Out = dict[str, str]  # engine → why

logger = logging.getLogger("weir.proxy.engines.watch")


class Current(msgspec.Struct, frozen=True):
    """The version that engines are to serve, and where its weights are; no folder: not published by Weir."""

    version: str
    folder: str | None


class EngineWatch:
    """Looks after the engines behind one router."""

    def __init__(
        self,
        rotation: Rotation,
        gate: Gate,
        catalog: Catalog,
        announced: Callable[[], str | None],
        folder: Path,
        period_s: float,
    ) -> None:
        name = "".join(c if c.isalnum() else "-" for c in rotation.router_url)
        self._rotation = rotation
        self._gate = gate
        self._catalog = catalog
        self._announced = announced
        self._lock_path = folder / f"engines-{name}.lock"
        self._out_path = folder / f"engines-{name}.json"
        self._period_s = period_s
        self._lock_fd: int | None = None
        self._silent: dict[str, int] = {}
        self._load_after: dict[str, float] = {}
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch from now on."""
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Leave it to others. May be called twice."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            await self._rotation.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def nudge(self) -> None:
        """An engine gave trouble: look now."""
        self._nudged.set()

    @property
    def watches(self) -> bool:
        """Whether this process is the one that watches."""
        return self._lock_fd is not None

    def out(self) -> _Out:
        """The engines that are out of rotation, and why."""
        try:
            return msgspec.json.decode(self._out_path.read_bytes(), type=_Out)
        except (FileNotFoundError, msgspec.DecodeError):
            return {}

    async def _watch(self) -> None:
        while True:
            if self._leads():
                try:
                    await self.check()
                except RotationFailed as error:
                    logger.info("the engines were not looked after: %s", error)
                except Exception:  # the edge of this task: it must go on
                    logger.exception("looking after the engines failed")
            self._nudged.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._nudged.wait(), self._period_s)

    async def check(self) -> None:
        """Look at every engine once, and do what is to be done. Raises `RotationFailed` without a router."""
        if not self._gate.is_open:
            return
        times_closed = self._gate.times_closed
        inside = await self._rotation.engines()
        out = self.out()
        known = sorted({*inside, *out})
        probes = dict(zip(known, await asyncio.gather(*map(self._rotation.probe, known)), strict=True))
        current = await self._current(probes)
        for engine, probe in probes.items():
            if not self._gate.is_open or self._gate.times_closed != times_closed:
                return  # the probes are from before an update
            await self._look_after(engine, probe, current, is_in=engine in inside, why_out=out.get(engine))

    async def _look_after(
        self, engine: str, probe: Probe, current: Current | None, *, is_in: bool, why_out: str | None
    ) -> None:
        if self._is_dead(engine, probe):
            if is_in:
                await self._take_out(engine, "it does not answer")
        elif probe.answer is Answer.SILENT:
            return
        elif current is not None and is_older(probe.version, current.version):
            if is_in:
                await self._take_out(engine, f"it serves version {probe.version}, current is {current.version}")
            await self._load(engine, current)
        elif why_out is not None:
            await self._put_in(engine, probe)

    def _is_dead(self, engine: str, probe: Probe) -> bool:
        silent = self._silent.get(engine, 0) + 1 if probe.answer is Answer.SILENT else 0
        self._silent[engine] = silent
        return probe.answer is Answer.DEAD or silent >= SILENT_CHECKS

    async def _current(self, probes: dict[str, Probe]) -> Current | None:
        """What engines are to serve: what was announced last, else published last; None when nobody confirms it.

        It is confirmed by the catalog, which has the weights, or by an engine that serves it.
        """
        versions = [row for row in await asyncio.to_thread(self._catalog.versions) if row.published_us is not None]
        newest = max(versions, key=lambda row: row.published_us or 0, default=None)
        wanted = self._announced() or (str(newest.version) if newest is not None else None)
        if wanted is None:
            return None
        folder = next((row.path for row in versions if str(row.version) == wanted), None)
        if folder is None and all(probe.version != wanted for probe in probes.values()):
            return None
        return Current(wanted, folder)

    async def _take_out(self, engine: str, why: str) -> None:
        self._keep(self.out() | {engine: why})
        await self._rotation.take_out(engine)
        logger.warning("the engine %s is out of rotation: %s", engine, why)

    async def _load(self, engine: str, current: Current) -> None:
        if current.folder is None or time.monotonic() < self._load_after.get(engine, 0.0):
            return
        try:
            await self._rotation.load(engine, current.folder, current.version, LOAD_LIMIT_S)
        except RotationFailed as error:
            self._load_after[engine] = time.monotonic() + AGAIN_S
            self._keep(self.out() | {engine: f"it did not load version {current.version}: {error}"})
            logger.warning("the engine %s stays out of rotation: %s", engine, error)
        else:
            logger.warning("the engine %s loaded version %s", engine, current.version)
            self.nudge()  # the next look finds it current, and puts it in

    async def _put_in(self, engine: str, probe: Probe) -> None:
        await self._rotation.put_in(engine)
        self._keep({url: why for url, why in self.out().items() if url != engine})
        logger.warning("the engine %s is in rotation again, with version %s", engine, probe.version)

    def _keep(self, out: _Out) -> None:
        aside = self._out_path.with_name(new_id("engines"))
        aside.write_bytes(msgspec.json.encode(out))
        aside.rename(self._out_path)

    def _leads(self) -> bool:
        if self._lock_fd is None:
            with contextlib.suppress(BlockingIOError):
                self._lock_fd = lock_file(self._lock_path)
        return self._lock_fd is not None


def is_older(version: str | None, current: str) -> bool:
    """Whether an engine is behind: versions are numbers that grow; a name is older than any number."""
    if version is None or version == current or not current.isdecimal():
        return False
    return not version.isdecimal() or int(version) < int(current)
