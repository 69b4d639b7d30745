"""The watch over engines, in front of a router and an engine that are one web server in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from weir.proxy.engines.gate import Gate
from weir.proxy.engines.router import RouterClient
from weir.proxy.engines.watch import Announced, EngineWatch
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import AsleepEngine, put_to_sleep
from weir.store.config import StoreConfig


class RouterAndEngine:
    """A router with one engine in rotation, and an engine, at one address."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.took: list[list[str]] = []
        self.version = "0"
        self.loads = True
        self.silences = 0  # so many lists of engines are answered after the limit
        self.num_listed = 0
        self.listing = asyncio.Event()  # they are asked for
        self.is_router = True
        self.lists = True  # what is put in
        self.asked: list[str] = []  # to be put in
        self.loading = asyncio.Event()  # weights begin to load
        self.may_load = asyncio.Event()
        self.may_load.set()

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read() or b"{}")
        answered: dict[str, Any] = {}
        if request.path.startswith("/workers/"):
            self.inside.clear()
        elif request.path == "/workers" and request.method == "POST":
            self.asked.append(body["url"])
            self.inside += [body["url"]] if self.lists else []
        elif request.path == "/workers":
            self.num_listed += 1
            self.listing.set()
            if self.silences:
                self.silences -= 1
                await asyncio.Event().wait()  # until the client leaves
            if not self.is_router:
                return web.Response(status=404)
            answered = {"workers": [{"url": url} for url in self.inside]}
        elif request.path == "/server_info":
            answered = {"startup_time": "1"}
        elif request.path == "/model_info":
            answered = {"weight_version": self.version}
        elif request.path == "/resume_memory_occupation":
            self.took.append(body["tags"])
        elif request.path == "/update_weights_from_disk":
            self.loading.set()
            await self.may_load.wait()
            answered = {"success": self.loads}
            self.version = body["weight_version"] if self.loads else self.version
        return web.json_response(answered)


@asynccontextmanager
async def watched(
    both: RouterAndEngine, folder: Path, *, gate: Gate | None = None, announced: Announced | None = None
) -> AsyncIterator[tuple[EngineWatch, Catalog, str]]:
    """The watch over them, its catalog, and their address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", both.answer)
    catalog = Catalog.open(StoreConfig(root=folder))
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        watch = EngineWatch(
            RouterClient(url), gate or Gate(60.0), catalog, announced=lambda: announced, folder=folder, period_s=60.0
        )
        try:
            yield watch, catalog, url
        finally:
            await watch.close()
            catalog.close()


async def check(watch: EngineWatch) -> None:
    """Check the engines once, and wait for the weights that load into some of them."""
    await watch.check()
    await asyncio.gather(*watch._loads.values())


def sleeps(catalog: Catalog, url: str) -> None:
    """Note that an engine fell asleep, for training that is gone."""
    held = 2**62  # until it is let go
    put_to_sleep(
        catalog,
        AsleepEngine(url=url, member="gpu", process="1", model_path="/m", weight_version="0", held_until_us=held),
    )
