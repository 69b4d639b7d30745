"""Gates that the controller closed: they stay closed while no engine is in rotation, and open with the first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rich.console import Console
from support_loading_engine import loading_engine
from support_router import running_router
from support_scripted_proxy import KEY, Proxy, scripted_proxy

from weir.scripts.live import engines as module
from weir.scripts.live.engines import Engines
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.settings.config import TrainerConfig


async def renewed(engines: Engines, proxy: Proxy) -> None:
    """Its limit opens the gate; return once it is closed again."""
    proxy.gate = "open"
    watching = asyncio.create_task(engines.watch_gates())
    while proxy.gate == "open" and not watching.done():  # noqa: ASYNC110 (another thread closes it)
        await asyncio.sleep(0.01)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def test_closed_gates_are_renewed_until_an_engine_returns(
    store: StoreConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RENEW_S", 0.01)
    catalog = Catalog.open(store)

    async def leave_and_return(engine: str, router: str, proxy: Proxy) -> None:
        config = TrainerConfig(engine_urls=[engine], router_url=router, proxy_urls=[proxy.url], control_key=KEY)
        engines = Engines(config, store, catalog, Console(quiet=True), None)
        await engines.leave(engine)
        assert proxy.gate == "closed"
        await renewed(engines, proxy)
        proxy.refuses = "/weir/pause"
        await engines.renew()  # a proxy that refuses once ends nothing
        proxy.refuses = None
        await renewed(engines, proxy)
        await engines.enter(engine)
        assert proxy.gate == "open"
        await engines.renew()
        assert proxy.gate == "open"
        await engines.close()

    with loading_engine() as engine, running_router([engine.url], tmp_path) as router, scripted_proxy() as proxy:
        asyncio.run(leave_and_return(engine.url, router.url, proxy))
    catalog.close()
