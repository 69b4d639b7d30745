"""The watch over engines: dead ones and ones with old weights leave the router's rotation, and return once current.

Routers run without health checks, because a paused engine would look dead to them. Of all processes that serve calls
through one router on this machine, one watches: the one that holds a lock file. Invariants: an engine returns only when
it answers and does not report an older version than the current one, and one that a publish left out only after it has
loaded the current one; while the gate is not open nothing is done, because weights are being exchanged, unless whoever
closed it is gone; engines out of rotation are kept in a file, with reasons, for the next watcher. Of engines that a
living controller decides about (`weir train`), dead ones are taken out and nothing else is done; those that a dead one
took out return. Calls that were lost wait for the next check (`nudge`). Weights load beside the checks, so that an
engine that dies meanwhile leaves the rotation; an engine that loads is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from weir.proxy.engines.gate import Gate
from weir.proxy.engines.router import Liveness, Probe, RouterClient, RouterFailed, RouterSilent
from weir.proxy.engines.version_labels import remark_on_versions
from weir.store.atomic_file import written_aside
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.cluster.members import controlled_engines, deserted_engines
from weir.store.catalog.devices.switches import AsleepEngine, asleep_engines, wake_up
from weir.store.catalog.rows import VersionRow
from weir.store.log.writer import lock_file
from weir.store.version_forms import published

CHECK_LIMIT_S = 30.0  # that a call waits for a check; a router may be slow
FAILED_PAUSE_S = 0.2
SILENT_CHECKS = 3  # without an answer, until an engine counts as dead: it may only be slow
LISTED_LIMIT_S = 2.0  # until the router lists an engine; other engines wait for their check meanwhile
LOAD_LIMIT_S = 300.0
LOAD_RETRY_S = 30.0  # between two attempts to load weights into one engine
LEFT_OUT = "left out by a publish: "  # begins the reason of engines that are paused, with weights of any version
_Out = dict[str, str]  # engine → why

logger = logging.getLogger("weir.proxy.engines.watch")


class Current(msgspec.Struct, frozen=True):
    """The version that engines should serve, and its weights' folder; None: not published by Weir."""

    version: str
    folder: str | None


class Announced(msgspec.Struct, frozen=True):
    """The version that the gate was opened with last, and when."""

    version: str
    at_us: int


class EngineWatch:
    """Watches the engines behind one router."""

    def __init__(
        self,
        rotation: RouterClient,
        gate: Gate,
        catalog: Catalog,
        announced: Callable[[], Announced | None],
        folder: Path,
        period_s: float,
        assumed_version: int | None = None,
        ask_watcher: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`ask_watcher` has the process that watches, where that is another one, check now; returns when it has."""
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
        self._seen: set[str] = set()  # engines that were in rotation
        self._assumed_version = assumed_version
        self._remarked: str | None = None
        self._loads: dict[str, asyncio.Task[None]] = {}  # by engine
        self._load_after: dict[str, float] = {}
        self._taken: dict[tuple[str, str | None], set[str]] = {}  # of engines and processes: memory taken again so far
        self._ask_watcher = ask_watcher
        self._nudged = asyncio.Event()
        self._check = self._next_check = _new_future(done=True)  # done where none runs, or none will
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start watching in the background."""
        self._next_check = _new_future()
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop watching, if that was started, and release what is held. May be called twice."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        loads = [*self._loads.values()]
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        for check in (self._check, self._next_check):
            _finish(check)
        await self._rotation.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def nudge(self) -> asyncio.Future[None]:
        """Check the engines now, because one failed a call; done once that check has taken the dead ones out.

        See `ended`. Done at once where nothing is watched.
        """
        self._nudged.set()
        return self._next_check

    def leave_out(self, engines: _Out) -> None:
        """A publish left these engines paused, for these reasons; they are to load the current weights first."""
        self._keep(self.out() | {url.rstrip("/"): f"{LEFT_OUT}{why}" for url, why in engines.items()})
        self.nudge()

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
            self._check, self._next_check = self._next_check, _new_future()
            was_nudged = self._nudged.is_set()
            self._nudged.clear()
            try:
                if self._leads():
                    await self._try_check(CHECK_LIMIT_S if was_nudged else 0.0)
                elif was_nudged and self._ask_watcher is not None:
                    await self._ask_watcher()
            except Exception:  # the edge of this task, which must continue
                logger.exception("the check of the engines failed")
            _finish(self._check)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._nudged.wait(), self._period_s)

    async def _try_check(self, limit_s: float) -> None:
        """Check every engine; where the router does not answer in time, again for so many seconds."""
        until_s = time.monotonic() + limit_s
        while True:
            try:
                return await self.check()
            except RouterFailed as error:
                is_router = bool(self._seen)  # and no engine that stands alone
                if not (is_router and isinstance(error, RouterSilent) and time.monotonic() < until_s):
                    logger.info("the engines were not checked: %s", error)
                    return None
            await asyncio.sleep(FAILED_PAUSE_S)

    async def check(self) -> None:
        """Check every engine once, and change its rotation where needed. Raises `RouterFailed` without a router."""
        if not self._may_change():
            return
        times_closed = self._gate.times_closed
        inside = await self._rotation.engines()
        controlled = await asyncio.to_thread(controlled_engines, self._catalog)
        asleep = await asyncio.to_thread(asleep_engines, self._catalog)
        await self._find_deserted({*inside}, {*asleep})
        out = self.out()
        known = sorted({*inside, *out})
        loading = {*self._loads}  # before they are probed
        probes = dict(zip(known, await asyncio.gather(*map(self._rotation.probe, known)), strict=True))
        self._remark_on_versions(probes)
        current = await self._current(probes, inside)
        self._forget_taken(asleep)
        for engine, probe in sorted(probes.items(), key=lambda probed: probed[1].liveness is Liveness.ALIVE):
            if not self._may_change() or self._gate.times_closed != times_closed:
                return  # the probes are from before an update
            if engine in loading:
                continue  # what it serves is about to change
            if engine in controlled:
                await self._leave_to_controller(engine, probe, is_in=engine in inside, is_kept=engine in out)
            elif (sleeper := asleep.get(engine)) is None:
                await self._update(engine, probe, current, is_in=engine in inside, why_out=out.get(engine))
            elif not sleeper.is_held and self._is_dead(engine, probe):
                if engine in inside:
                    await self._take_out(engine, "it does not answer")
            elif not sleeper.is_held and probe.liveness is Liveness.ALIVE:
                await self._bring_back(sleeper, current, is_in=engine in inside)

    async def recover(self) -> bool:
        """Once whoever closed the gate is gone: whether an engine is in rotation that is fit to serve; it continues.

        Engines that may hold parts of two versions leave the rotation, and load the current one. Those are all that do
        not report the newest version, unless only engines out of rotation were loading. Raises `RouterFailed`.
        """
        inside = sorted(await self._rotation.engines())
        probes = await asyncio.gather(*map(self._rotation.probe, inside))
        asleep = await asyncio.to_thread(asleep_engines, self._catalog)
        versions = await asyncio.to_thread(self._catalog.versions)
        newest = str(max(row.version for row in versions)) if versions else None
        fit, unsure = list[str](), dict[str, str]()
        for engine, probe in zip(inside, probes, strict=True):
            is_whole = self._gate.serve_passes or newest in (None, probe.version)
            if engine in asleep or engine in self.out():
                continue
            if probe.liveness is Liveness.ALIVE and is_whole:
                fit.append(engine)
            else:
                unsure[engine] = "whoever published to it is gone, and it may hold parts of two versions"
        if not self._gate.is_abandoned:
            return False
        if unsure:
            self.leave_out(unsure)
        for engine in unsure:
            await self._rotation.take_out(engine)
        for engine in fit:
            await self._rotation.go_on(engine)
        if not fit:
            self.nudge()
        return bool(fit)

    def _may_change(self) -> bool:
        """Whether nobody exchanges weights now."""
        return self._gate.is_open or self._gate.is_abandoned

    async def _find_deserted(self, inside: set[str], asleep: set[str]) -> None:
        """Engines that a controller took out of rotation, and that died before it brought them back, are to return."""
        self._seen |= inside
        deserted = await asyncio.to_thread(deserted_engines, self._catalog)
        left = (deserted & self._seen) - inside - asleep - self.out().keys()
        if left:
            logger.warning("the controller that took %s out of rotation is gone", ", ".join(sorted(left)))
            self._keep(self.out() | dict.fromkeys(sorted(left), f"{LEFT_OUT}its controller is gone"))

    def _remark_on_versions(self, probes: dict[str, Probe]) -> None:
        """Say once, also of engines that came after the start, that their versions are no integers."""
        remark = remark_on_versions((probe.version for probe in probes.values()), self._assumed_version)
        if remark is not None and remark != self._remarked:
            logger.warning("%s", remark)
        self._remarked = remark

    async def _update(
        self, engine: str, probe: Probe, current: Current | None, *, is_in: bool, why_out: str | None
    ) -> None:
        if self._is_dead(engine, probe):
            if is_in:
                await self._take_out(engine, "it does not answer")
        elif probe.liveness is Liveness.SILENT:
            return
        elif why_out is not None and why_out.startswith(LEFT_OUT):
            if is_in:
                await self._take_out(engine, why_out)
            if current is not None:
                self._begin_load(engine, current)
        elif current is not None and is_older(probe.version, current.version):
            if is_in:
                await self._take_out(engine, f"it serves version {probe.version}, current is {current.version}")
            self._begin_load(engine, current)
        elif why_out is not None:
            await self._put_in(engine, probe)

    async def _leave_to_controller(self, engine: str, probe: Probe, *, is_in: bool, is_kept: bool) -> None:
        """Take a dead engine out, so that no call goes there; what becomes of it the controller decides."""
        if is_kept:
            self._keep({url: why for url, why in self.out().items() if url != engine})
        if is_in and self._is_dead(engine, probe):
            await self._rotation.take_out(engine)
            logger.warning("the engine %s is out of rotation: it does not answer", engine)

    async def _bring_back(self, sleeper: AsleepEngine, current: Current | None, *, is_in: bool) -> None:
        """An engine gave its memory back to training that is gone: it gets the current weights, else what it had."""
        if is_in:
            await self._take_out(sleeper.url, "it gave its memory back to training, which has ended")
        had = Current(sleeper.weight_version or "0", sleeper.model_path)
        has_weights = current is not None and current.folder is not None
        self._begin_load(sleeper.url, current if current is not None and has_weights else had, asleep=sleeper)

    def _forget_taken(self, asleep: Mapping[str, AsleepEngine]) -> None:
        """Only while nobody puts an engine to sleep again does it still have the memory that it took again."""
        brought_back = {(row.url, row.process) for row in asleep.values() if not row.is_held}
        self._taken = {key: tags for key, tags in self._taken.items() if key in brought_back}

    def _is_dead(self, engine: str, probe: Probe) -> bool:
        silent = self._silent.get(engine, 0) + 1 if probe.liveness is Liveness.SILENT else 0
        self._silent[engine] = silent
        return probe.liveness is Liveness.DEAD or silent >= SILENT_CHECKS

    async def _current(self, probes: dict[str, Probe], inside: Collection[str]) -> Current | None:
        """The version that engines should serve: the one that was announced or published last.

        None unless it is confirmed: by the catalog, which has the weights, or by an engine that serves it. With nobody
        left to publish, it is the newest one in the catalog, which `recover` asks of engines.
        """
        rows = await asyncio.to_thread(self._catalog.versions)
        if (newest := self._unpublished(rows, probes, inside)) is not None:
            wanted: str | None = str(newest.version)
        else:
            wanted = self._last_served(rows)
        if wanted is None:
            return None
        versions = [row for row in rows if row.published_us is not None or row is newest]
        folder = next((row.path for row in versions if str(row.version) == wanted), None)
        if folder is None and all(probe.version != wanted for probe in probes.values()):
            return None
        return Current(wanted, None if folder is None else str(published(Path(folder))))

    def _unpublished(
        self, rows: Sequence[VersionRow], probes: dict[str, Probe], inside: Collection[str]
    ) -> VersionRow | None:
        """The newest version, where whoever was to publish it is gone and engines that it left out need it."""
        newest = max(rows, key=lambda row: row.version, default=None)
        if newest is None or not self._left_out():
            return None
        if self._gate.is_abandoned:
            return newest
        is_served = any(probes[engine].version == str(newest.version) for engine in inside)  # others go on with it
        is_first = all(row.published_us is None for row in rows)
        return newest if newest.published_us is None and (is_served or is_first) else None

    def _last_served(self, rows: Sequence[VersionRow]) -> str | None:
        """The version that was announced last, unless one was published since to engines out of rotation."""
        published = max((row for row in rows if row.published_us), key=lambda row: row.published_us or 0, default=None)
        announced = self._announced()
        if announced is not None and (published is None or announced.at_us >= (published.published_us or 0)):
            return announced.version
        return None if published is None else str(published.version)

    def _left_out(self) -> _Out:
        return {engine: why for engine, why in self.out().items() if why.startswith(LEFT_OUT)}

    async def _take_out(self, engine: str, why: str) -> None:
        why = self._left_out().get(engine, why)  # that it is left out may have come after its probe
        self._keep(self.out() | {engine: why})
        await self._rotation.take_out(engine)
        logger.warning("the engine %s is out of rotation: %s", engine, why)

    def _begin_load(self, engine: str, current: Current, *, asleep: AsleepEngine | None = None) -> None:
        """Load weights beside the checks, unless that failed just now."""
        if current.folder is None or time.monotonic() < self._load_after.get(engine, 0.0):
            return
        self._loads[engine] = asyncio.create_task(self._load(engine, current.folder, current.version, asleep))

    async def _load(self, engine: str, folder: str, version: str, asleep: AsleepEngine | None) -> None:
        taken = self._taken.setdefault((engine, asleep.process), set()) if asleep is not None else set()
        try:
            await self._rotation.load(engine, folder, version, LOAD_LIMIT_S, asleep=asleep, taken=taken)
            if asleep is not None:
                await asyncio.to_thread(wake_up, self._catalog, [engine])
        except RouterFailed as error:
            self._load_after[engine] = time.monotonic() + LOAD_RETRY_S
            mark = LEFT_OUT if engine in self._left_out() else ""
            self._keep(self.out() | {engine: f"{mark}it did not load version {version}: {error}"})
            logger.warning("the engine %s stays out of rotation: %s", engine, error)
        except Exception:  # the edge of this task
            logger.exception("weights did not load into the engine %s", engine)
        else:
            logger.warning("the engine %s loaded version %s", engine, version)
            self._keep(self.out() | {engine: f"it was behind, and has loaded version {version}"})
            self.nudge()  # the next check finds it current, and adds it to the rotation
        finally:
            del self._loads[engine]

    async def _put_in(self, engine: str, probe: Probe) -> None:
        if engine in self._left_out():
            return  # since it was probed
        try:
            await self._rotation.put_in(engine, LISTED_LIMIT_S)
        except RouterFailed as error:  # the check continues; the next one finds it listed, or asks again
            logger.warning("the engine %s is not in rotation yet: %s", engine, error)
            return
        self._keep({url: why for url, why in self.out().items() if url != engine})
        logger.warning("the engine %s is in rotation again, with version %s", engine, probe.version)

    def _keep(self, out: _Out) -> None:
        with written_aside(self._out_path) as aside:
            aside.write_bytes(msgspec.json.encode(out))

    def _leads(self) -> bool:
        if self._lock_fd is None:
            with contextlib.suppress(BlockingIOError):
                self._lock_fd = lock_file(self._lock_path)
        return self._lock_fd is not None


async def ended(check: asyncio.Future[None]) -> None:
    """Return once a check of the engines has ended, or has taken too long."""
    await asyncio.wait([check], timeout=CHECK_LIMIT_S)


def _new_future(*, done: bool = False) -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if done:
        future.set_result(None)
    return future


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def is_older(version: str | None, current: str) -> bool:
    """Whether an engine is behind: versions are numbers that grow; a name is older than any number."""
    if version is None or version == current or not current.isdecimal():
        return False
    return not version.isdecimal() or int(version) < int(current)
