"""The engines of a cluster behind the proxies' router: in and out of rotation, and new weights.

Calls of an engine that leaves end with their partial output, and the proxies send them on to engines that stay. With no
engine in rotation the gates of all proxies are closed, so that calls wait instead of being refused; where calls may
only be held for so long, an engine stands in instead: it takes calls although its member trains, until another one
enters. Where calls with the tag `serve` are never to wait, engines load out of rotation, while others stay and gates
let such calls pass. Where all engines need longer to load than calls may be held, they load out of rotation from then
on, one half after the other. Invariants: an engine enters the rotation with the newest weights only; one that left is
paused, and calls that reach it late are sent away, unless it stands in.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import httpx
from rich.console import Console

from weir.cluster.live.world import MemberFailed
from weir.proxy.engines.router import Liveness, Probe, RouterClient, RouterFailed
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.errors import HoldTooShort, TrainerError
from weir.trainer.http_json import LIMITS, Refused, Unreachable, for_each, get, post
from weir.trainer.publishing.catalog_entries import control_key, serve
from weir.trainer.publishing.gates import Gates
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import MANIFEST, current_version

LATE_SWEEPS_S = (0.1, 0.3)  # a call that the router chose before the engine left may come a little later
RENEW_S = 5.0  # between two renewals of closed gates
ENTER_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Engines that did not load, with reasons, and the seconds in which weights travelled while calls went on."""

    failed: Mapping[str, str]
    staged_s: float


class Engines:
    """The engines of one router, by URL."""

    def __init__(
        self,
        config: TrainerConfig,
        store: StoreConfig,
        catalog: Catalog,
        console: Console,
        max_hold_s: float | None,
        *,
        serves: bool = False,
        stages_ahead: bool = True,
    ) -> None:
        """`serves`: calls may have the tag `serve`; `max_hold_s` bounds the wait of these, or else of all calls.

        `stages_ahead`: weights travel to engines that can keep them aside while these still generate.
        """
        assert config.router_url is not None
        self.router = RouterClient(config.router_url)
        self._http = httpx.AsyncClient(trust_env=False, timeout=None, limits=LIMITS)
        self._config, self._store, self._catalog, self._console = config, store, catalog, console
        self._max_hold_s = config.publish_timeout_s if max_hold_s is None and serves else max_hold_s
        self._limits_hold = self._max_hold_s is not None
        self._in_turns = False  # a load needed longer than calls may be held
        self._slow: set[str] = set()  # engines that need longer by themselves
        self._entering = 0
        self._serves, self._stages_ahead = serves, stages_ahead
        self._left: list[str] = []  # that were taken out for training, the last one last
        self._sweeping: dict[str, asyncio.Task[None]] = {}  # of engines that have just left
        self._dead: set[str] = set()  # which the router may still list
        self._stands_in: str | None = None
        self._gates = self._new_gates()
        self._closed = False
        self._changing = asyncio.Lock()  # of the rotation

    async def close(self) -> None:
        """Open the gates, if they are closed, and close all connections."""
        if self._closed:
            await self._open_gates()
        for url in list(self._sweeping):
            await self._swept(url)
        await self._http.aclose()
        await self.router.close()

    async def probe(self, url: str) -> Probe:
        """Whether an engine answers, and its version."""
        return await self.router.probe(url)

    async def is_busy(self, url: str) -> bool:
        """Whether calls run at an engine; true where it does not say."""
        try:
            states = (await get(self._http, f"{url}/server_info", timeout_s=2.0)).get("internal_states") or [{}]
        except Refused:
            return False
        return any(state.get("num_running", 1) or state.get("num_waiting", 0) for state in states)

    async def lacks_room(self, url: str) -> bool | None:
        """Whether calls wait at an engine that computes fewer at once than it may: for room in its KV cache.

        None where it does not say, as SGLang does.
        """
        try:
            loads = (await get(self._http, f"{url}/v1/loads?include=core", timeout_s=2.0))["loads"]
            return any(of["num_waiting_reqs"] and of["num_running_reqs"] < of["max_running_requests"] for of in loads)
        except Unreachable:  # it may be slow for once
            return False
        except (Refused, KeyError, TypeError):
            return None

    async def enter(self, url: str) -> None:
        """Bring an engine into the rotation, with the newest weights. Raises `MemberFailed`."""
        self._returns(url)
        self._entering += 1
        try:
            await self._swept(url)
            await self._load_newest(url)
            async with self._changing:
                await self.router.put_in(url)
                if self._closed:
                    await self._open_gates()
                replaced, self._stands_in = self._stands_in, None
                if replaced is not None:
                    await self._replace(replaced)
        except (Refused, RouterFailed, TrainerError) as error:
            raise MemberFailed(str(error)) from error
        finally:
            self._entering -= 1

    async def leave(self, url: str) -> None:
        """Take an engine out of rotation and pause it; its calls go on elsewhere. Raises `MemberFailed`.

        The last one stands in for the others where calls may only be held for so long.
        """
        try:
            async with self._changing:
                self._returns(url)
                if not await self._others(url):
                    if self._limits_hold:
                        self._stand_in(url)
                        return
                    await self._close_gates()
                await self._take_out(url)
                self._left.append(url)
            await self._pause(url)
            self._sweeping[url] = asyncio.create_task(self._sweep_beside(url))
        except (Refused, RouterFailed, TrainerError) as error:
            raise MemberFailed(str(error)) from error

    async def keep_one(self, dead: Set[str]) -> None:
        """Where no engine of the rotation answers any more, the one that left last stands in, or calls are held.

        Nothing is done where none has left: then none would return by itself.
        """
        self._dead = set(dead)
        async with self._changing:
            able = [url for url in self._left if url not in self._dead]
            try:
                if self._closed or not able or await self._others():
                    return
                if not self._limits_hold:
                    await self._close_gates()
                    return
                await self._swept(able[-1])
                await self._load_newest(able[-1])
                await self.router.put_in(able[-1])
                self._returns(able[-1])
                self._stand_in(able[-1])
            except (Refused, RouterFailed, TrainerError, MemberFailed) as error:
                self._console.print(f"no engine takes calls, and {able[-1]} cannot stand in: {error}", soft_wrap=True)

    async def renew(self) -> None:
        """Close the gates again, where they are closed: they open by themselves, and proxies may be new."""
        async with self._changing:
            if not self._closed:
                return
            try:
                await self._gates.close()
            except (Refused, TrainerError) as error:
                self._console.print(f"gates stay closed, but were not renewed: {error}", soft_wrap=True)

    async def watch_gates(self) -> None:
        """Renew closed gates now and then, until cancelled."""
        while True:
            await asyncio.sleep(RENEW_S)
            await self.renew()

    async def forget(self, url: str) -> None:
        """An engine is gone for good. Raises `RouterFailed`."""
        async with self._changing:
            self._returns(url)
            await self._take_out(url)

    async def sweep(self, url: str) -> None:
        """Send away calls that came to a paused engine. Raises `Refused`."""
        if url != self._stands_in:
            await post(self._http, f"{url}/abort_request", {"abort_all": True})

    async def load(self, urls: Sequence[str]) -> Loaded:
        """Load the newest weights behind closed gates, or out of rotation where calls may not be held for so long."""
        try:
            if self._serves and await self._others() - {*urls}:
                return self._loaded(await self._load_aside(urls))
            if not self._in_turns:
                try:
                    return self._loaded(await self._publish(urls, hold_limit_s=self._max_hold_s))
                except HoldTooShort as error:
                    self._needs_longer(urls, error)
            return await self._load_in_turns(urls)
        except (Refused, RouterFailed, TrainerError, MemberFailed) as error:
            return Loaded(failed=dict.fromkeys(urls, str(error)), staged_s=0.0)

    def _needs_longer(self, urls: Sequence[str], error: HoldTooShort) -> None:
        self._slow |= {*urls} if len(urls) == 1 else set()
        if not self._in_turns:
            self._console.print(
                f"engines load in turns from now on, out of rotation: to load needs longer than the "
                f"{self._max_hold_s:g} s of cluster.max_hold_s: {error}",
                soft_wrap=True,
            )
        self._in_turns = True

    async def _load_in_turns(self, urls: Sequence[str]) -> Loaded:
        """One half after the other while the others take calls; one that is alone waits for those that enter."""
        left, failed = list(urls), dict[str, str]()
        while left:
            others = await self._others_soon(left)
            turn = left if others else left[: len(left) // 2 or 1]
            left = [url for url in left if url not in turn]
            try:
                if others or left:
                    failed |= (await self._load_aside(turn)).failed
                else:
                    await self._load_alone(turn[0])
            except (Refused, RouterFailed, TrainerError, MemberFailed) as error:
                failed |= dict.fromkeys([*turn, *left], str(error))  # what is left would take calls alone
                break
        return Loaded(failed=failed, staged_s=0.0)

    async def _others_soon(self, urls: Sequence[str]) -> set[str]:
        """The other engines of the rotation; where one engine is left alone, once one that enters is there."""
        while not (others := await self._others() - {*urls}) and len(urls) == 1 and self._entering:  # noqa: ASYNC110 (routers tell of nothing)
            await asyncio.sleep(ENTER_POLL_S)
        return others

    async def _load_alone(self, url: str) -> None:
        """Load where no other engine takes calls: within the time that they may be held, or else aloud."""
        if url not in self._slow:
            try:
                await self._publish([url], hold_limit_s=self._max_hold_s)
                return
            except HoldTooShort as error:
                self._needs_longer([url], error)
        self._console.print(
            f"engine {url} is alone in rotation and needs longer to load than cluster.max_hold_s: calls are held "
            "until it has loaded",
            soft_wrap=True,
        )
        await self._publish([url])

    def _loaded(self, report: PublishReport) -> Loaded:
        staged_s = report.times.get("engines_stage", 0.0) if self._stages_ahead else 0.0
        return Loaded(failed=report.failed, staged_s=staged_s)

    async def _load_aside(self, urls: Sequence[str]) -> PublishReport:
        """Load out of rotation, beside engines that stay; with calls that have the tag `serve`, others are held.

        Engines that do not pause fail, and the others load; where none pauses, all are back in rotation.
        """
        gates = self._new_gates()
        version: int | None = None
        try:
            if self._serves:
                await gates.close(serve_passes=True)
            unpaused = await self._take_aside(urls)
            report = await self._publish([url for url in urls if url not in unpaused], holds_calls=False)
            version = report.version
            async with self._changing:
                for url in report.serving:
                    await self.router.put_in(url)
        finally:
            await gates.open(version, {})
        return dataclasses.replace(report, failed=unpaused | report.failed)

    async def _take_aside(self, urls: Sequence[str]) -> dict[str, str]:
        """Take engines out of rotation and pause them; returns why some did not pause. Raises `Refused` if none did."""
        try:
            async with self._changing:
                for url in urls:
                    await self._take_out(url)
            unpaused = await for_each(urls, self._pause_and_sweep)
            if len(unpaused) == len(urls):
                raise Refused(next(iter(unpaused.values())))
        except (Refused, RouterFailed):  # nothing was loaded: they go on with the weights that they have
            async with self._changing:
                for url in urls:
                    with contextlib.suppress(Refused, RouterFailed, MemberFailed):
                        await post(self._http, f"{url}/continue_generation", {})
                        await self.router.put_in(url)
            raise
        return unpaused

    def _new_gates(self) -> Gates:
        return Gates(self._http, self._config.proxy_urls, self._catalog, control_key(self._config, self._store))

    async def _load_newest(self, url: str) -> None:
        """Load the newest weights and go on; out of rotation, unless there is no other engine and holds are limited."""
        newest = current_version(self._store.folder)
        probe = await self.probe(url)
        if probe.liveness is not Liveness.ALIVE:
            raise MemberFailed("it does not answer")
        if newest is None or not (newest.path / MANIFEST).exists() or probe.version == str(newest.manifest.version):
            await post(self._http, f"{url}/continue_generation", {})
        elif self._limits_hold and url in await self.router.engines() and not await self._others(url):
            await self._load_alone(url)
        else:
            await self._take_out(url)
            await self._publish([url], holds_calls=False)

    async def _others(self, url: str | None = None) -> set[str]:
        """The engines of the rotation that may answer, without this one."""
        return set(await self.router.engines()) - self._dead - {url}

    def _returns(self, url: str) -> None:
        """It is neither out for training nor stands in any more."""
        self._left = [other for other in self._left if other != url]
        self._stands_in = None if self._stands_in == url else self._stands_in

    def _stand_in(self, url: str) -> None:
        self._stands_in = url
        self._console.print(
            f"engine {url} takes calls although its member trains: no other engine is left, and cluster.max_hold_s "
            "bounds how long calls wait",
            soft_wrap=True,
        )

    async def _replace(self, url: str) -> None:
        """Take out an engine that stood in; one that fails is found dead by whoever looks."""
        with contextlib.suppress(Refused, RouterFailed):
            await self._take_out(url)
            self._left.append(url)
            await self._pause_and_sweep(url)

    async def _pause(self, url: str) -> None:
        """Pause an engine and send its calls away."""
        await post(self._http, f"{url}/pause_generation", {"mode": "abort"})
        await self.sweep(url)

    async def _pause_and_sweep(self, url: str) -> None:
        """Pause an engine and send its calls away, late ones too."""
        await self._pause(url)
        await self._sweep_late(url)

    async def _sweep_late(self, url: str) -> None:
        for pause_s in LATE_SWEEPS_S:
            await asyncio.sleep(pause_s)
            await self.sweep(url)

    async def _sweep_beside(self, url: str) -> None:
        """Nobody waits for late calls before training begins; an engine that died is found by whoever looks."""
        with contextlib.suppress(Refused):
            await self._sweep_late(url)

    async def _swept(self, url: str) -> None:
        """Return once no sweep of an engine that left is to come: it would abort the calls of one that returns."""
        task = self._sweeping.pop(url, None)
        if task is not None:
            await task

    async def _close_gates(self) -> None:
        if not self._closed:
            try:
                await self._gates.close()
            except BaseException:  # some closed, and would be renewed
                await self._gates.open(None, {})
                raise
            self._closed = True

    async def _publish(
        self, urls: Sequence[str], *, holds_calls: bool = True, hold_limit_s: float | None = None
    ) -> PublishReport:
        newest = current_version(self._store.folder)
        assert newest is not None
        to_these = self._config.model_copy(update={"engine_urls": list(urls)})
        return await asyncio.to_thread(
            serve,
            newest.path,
            self._catalog,
            self._store,
            to_these,
            self._console,
            holds_calls=holds_calls,
            stages_ahead=self._stages_ahead,
            hold_limit_s=hold_limit_s,
        )

    async def _take_out(self, url: str) -> None:
        if url in await self.router.engines():
            await self.router.take_out(url)

    async def _open_gates(self) -> None:
        await self._gates.open(None, {})
        self._closed = False
