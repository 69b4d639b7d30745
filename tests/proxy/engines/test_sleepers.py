"""Engines that sleep for training that is gone: the watch brings back those that live, and no call goes to the dead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support_servers import find_free_port

from weir.proxy.engines import watch as watching
from weir.proxy.engines.gate import Gate
from weir.proxy.engines.router import RouterClient
from weir.proxy.engines.watch import EngineWatch
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import AsleepEngine, asleep_engines, let_go, put_to_sleep
from weir.store.config import StoreConfig


class RouterAndEngine:
    """A router with one engine in rotation, and an engine, at one address."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.took: list[list[str]] = []
        self.loads = True

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read() or b"{}")
        answered: dict[str, Any] = {}
        if request.path.startswith("/workers/"):
            self.inside.clear()
        elif request.path == "/workers":
            answered = {"workers": [{"url": url} for url in self.inside]}
        elif request.path == "/server_info":
            answered = {"startup_time": "1"}
        elif request.path == "/model_info":
            answered = {"weight_version": "0"}
        elif request.path == "/resume_memory_occupation":
            self.took.append(body["tags"])
        elif request.path == "/update_weights_from_disk":
            answered = {"success": self.loads}
        return web.json_response(answered)


@asynccontextmanager
async def watched(both: RouterAndEngine, folder: Path) -> AsyncIterator[tuple[EngineWatch, Catalog, str]]:
    """The watch over them, its catalog, and their address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", both.answer)
    catalog = Catalog.open(StoreConfig(root=folder))
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        watch = EngineWatch(
            RouterClient(url), Gate(60.0), catalog, announced=lambda: None, folder=folder, period_s=60.0
        )
        try:
            yield watch, catalog, url
        finally:
            await watch.close()
            catalog.close()


def sleeps(catalog: Catalog, url: str) -> None:
    """Note that an engine fell asleep, for training that is gone."""
    held = 2**62  # until it is let go
    put_to_sleep(
        catalog,
        AsleepEngine(url=url, member="gpu", process="1", model_path="/m", weight_version="0", held_until_us=held),
    )


def test_a_dead_engine_that_slept_leaves_the_rotation_once_its_trainer_is_gone(tmp_path: Path) -> None:
    async def run() -> None:
        dead = f"http://127.0.0.1:{find_free_port()}"
        both = RouterAndEngine()
        both.inside = [dead]
        async with watched(both, tmp_path) as (watch, catalog, _):
            sleeps(catalog, dead)
            await watch.check()
            assert both.inside == [dead]  # its trainer decides
            let_go(catalog, "gpu")
            while both.inside:  # a probe on a slow machine may be silence, which counts after three
                await watch.check()
            assert watch.out() == {dead: "it does not answer"}
            assert set(asleep_engines(catalog)) == {dead}

    asyncio.run(run())


@pytest.mark.parametrize("failing", ["load", "wake_up"])
def test_an_engine_takes_its_memory_again_once_however_often_it_is_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    wake_up = watching.wake_up

    def lost(*_: object) -> None:
        raise RuntimeError("the catalog is away")

    async def bring_back(watch: EngineWatch, both: RouterAndEngine) -> None:
        """Once in vain, then with success."""
        both.loads = failing != "load"
        monkeypatch.setattr(watching, "wake_up", lost if failing == "wake_up" else wake_up)
        if failing == "wake_up":
            with pytest.raises(RuntimeError, match="is away"):
                await watch.check()
        else:
            await watch.check()
        both.loads = True
        monkeypatch.setattr(watching, "wake_up", wake_up)
        await watch.check()

    async def run() -> None:
        both = RouterAndEngine()
        async with watched(both, tmp_path) as (watch, catalog, engine):
            for nap in (1, 2):
                both.inside = [engine]
                sleeps(catalog, engine)
                await watch.check()
                let_go(catalog, "gpu")
                await bring_back(watch, both)
                assert not asleep_engines(catalog)
                assert both.took == [["weights"], ["kv_cache"]] * nap

    monkeypatch.setattr(watching, "LOAD_RETRY_S", 0.0)
    asyncio.run(run())
