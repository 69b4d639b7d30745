"""The engines of a cluster behind the proxies' router: in and out of rotation, and new weights.

Calls of an engine that leaves end with their partial output, and the proxies send them on to engines that stay. With no
engine in rotation the gates of all proxies are closed, so that calls wait instead of being refused. Invariants: an
engine enters the rotation with the newest weights only; one that left is paused and holds no call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import httpx
from rich.console import Console

from weir.cluster.live.world import MemberFailed
from weir.proxy.engines.router import Liveness, Probe, RouterClient, RouterFailed
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.errors import TrainerError
from weir.trainer.http_json import Refused, get, post
from weir.trainer.publishing.catalog_entries import control_key, serve
from weir.trainer.publishing.gates import Gates
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import MANIFEST, current_version

SWEEPS_S = (0.0, 0.1, 0.3)  # a call that the router chose before the engine left may come a little later
RENEW_S = 5.0  # between two renewals of closed gates
ENTER_LIMIT_S = 30.0  # until the router lists an engine
ENTER_POLL_S = 0.05


class Engines:
    """The engines of one router, by URL."""

    def __init__(
        self, config: TrainerConfig, store: StoreConfig, catalog: Catalog, console: Console, max_hold_s: float | None
    ) -> None:
        assert config.router_url is not None
        self.router = RouterClient(config.router_url)
        self._http = httpx.AsyncClient(trust_env=False, timeout=None)
        self._config, self._store, self._catalog, self._console = config, store, catalog, console
        hold_s = config.publish_timeout_s if max_hold_s is None else min(max_hold_s, config.publish_timeout_s)
        self._held_config = config.model_copy(update={"publish_timeout_s": hold_s})
        self._gates = Gates(self._http, config.proxy_urls, catalog, control_key(config, store))
        self._closed = False
        self._changing = asyncio.Lock()  # of the rotation

    async def close(self) -> None:
        """Open the gates, if they are closed, and close all connections."""
        if self._closed:
            await self._open_gates()
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

    async def enter(self, url: str) -> None:
        """Bring an engine into the rotation, with the newest weights. Raises `MemberFailed`."""
        try:
            newest = current_version(self._store.folder)
            probe = await self.probe(url)
            if probe.liveness is not Liveness.ALIVE:
                raise MemberFailed("it does not answer")
            if (
                newest is not None
                and (newest.path / MANIFEST).exists()
                and probe.version != str(newest.manifest.version)
            ):
                await self._take_out(url)
                await self._publish([url], self._config, holds_calls=False)
            else:
                await post(self._http, f"{url}/continue_generation", {})
            async with self._changing:
                await self._put_in(url)
                if self._closed:
                    await self._open_gates()
        except (Refused, RouterFailed, TrainerError) as error:
            raise MemberFailed(str(error)) from error

    async def leave(self, url: str) -> None:
        """Take an engine out of rotation and pause it; its calls go on elsewhere. Raises `MemberFailed`."""
        try:
            async with self._changing:
                if not self._closed and set(await self.router.engines()) <= {url}:
                    await self._gates.close()
                    self._closed = True
                await self._take_out(url)
            await post(self._http, f"{url}/pause_generation", {"mode": "abort"})
            for pause_s in SWEEPS_S:
                await asyncio.sleep(pause_s)
                await self.sweep(url)
        except (Refused, RouterFailed, TrainerError) as error:
            raise MemberFailed(str(error)) from error

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

    async def sweep(self, url: str) -> None:
        """Send away calls that came to a paused engine. Raises `Refused`."""
        await post(self._http, f"{url}/abort_request", {"abort_all": True})

    async def load(self, urls: Sequence[str]) -> Mapping[str, str]:
        """Load the newest weights behind closed gates; returns why engines failed, by URL."""
        try:
            return (await self._publish(urls, self._held_config, holds_calls=True)).failed
        except TrainerError as error:
            return dict.fromkeys(urls, str(error))

    async def _publish(self, urls: Sequence[str], config: TrainerConfig, *, holds_calls: bool) -> PublishReport:
        newest = current_version(self._store.folder)
        assert newest is not None
        to_these = config.model_copy(update={"engine_urls": list(urls)})
        return await asyncio.to_thread(
            serve, newest.path, self._catalog, self._store, to_these, self._console, holds_calls=holds_calls
        )

    async def _take_out(self, url: str) -> None:
        if url in await self.router.engines():
            await self.router.take_out(url)

    async def _put_in(self, url: str) -> None:
        if url in await self.router.engines():
            return
        await self.router.put_in(url)
        limit = time.monotonic() + ENTER_LIMIT_S
        while url not in await self.router.engines():
            if time.monotonic() > limit:
                raise MemberFailed(f"the router did not list it within {ENTER_LIMIT_S:g} s")
            await asyncio.sleep(ENTER_POLL_S)

    async def _open_gates(self) -> None:
        await self._gates.open(None, {})
        self._closed = False
