"""Gates that the controller closed: they stay closed while no engine is in rotation, and open with the first.

Where calls may only be held for so long, an engine stands in and no gate is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import httpx
import pytest
from rich.console import Console
from support_loading_engine import LoadingEngine, loading_engine
from support_model import make_tiny_model
from support_router import running_router, wait_for_workers
from support_scripted_proxy import KEY, Proxy, scripted_proxy

from weir.scripts.live import engines as module
from weir.scripts.live.engines import Engines
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.publishing.gates import LEASE_S
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import version_path, write_version


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two engines behind a router, and the gate of the proxy before it."""

    first: LoadingEngine
    second: LoadingEngine
    proxy: Proxy
    config: TrainerConfig


@contextmanager
def running_pair(folder: Path) -> Iterator[Pair]:
    with (
        loading_engine() as first,
        loading_engine() as second,
        scripted_proxy() as proxy,
        running_router([first.url, second.url], folder) as router,
    ):
        urls = [first.url, second.url]
        config = TrainerConfig(engine_urls=urls, router_url=router.url, proxy_urls=[proxy.url], control_key=KEY)
        yield Pair(first=first, second=second, proxy=proxy, config=config)


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


def test_a_hold_is_bounded_though_the_engine_that_stays_dies(store: StoreConfig, tmp_path: Path) -> None:
    """The one that trains stands in, until the other one is back."""
    catalog = Catalog.open(store)

    async def lose_the_one_that_stays(pair: Pair) -> None:
        engines = Engines(pair.config, store, catalog, Console(quiet=True), 5.0)
        first, second = pair.first, pair.second
        await engines.leave(first.url)
        assert first.paused
        await engines.keep_one(set())
        assert set(await engines.router.engines()) == {second.url}, "one that answers is enough"
        await engines.keep_one({second.url})
        assert first.url in await engines.router.engines() and not first.paused
        first.told.clear()
        await engines.sweep(first.url)
        assert first.told == [], "its calls are left alone"
        await engines.keep_one(set())
        await engines.router.take_out(second.url)
        await engines.enter(second.url)
        assert set(await engines.router.engines()) == {second.url} and first.paused, "it trains alone again"
        await engines.renew()
        assert pair.proxy.told == [], "no gate was closed, so none is renewed"
        await engines.close()

    with running_pair(tmp_path) as pair:
        asyncio.run(lose_the_one_that_stays(pair))
    catalog.close()


async def check_late_calls(engines: Engines, engine: LoadingEngine) -> None:
    """Training does not wait for calls that come late to an engine that left; its return does."""
    await engines.leave(engine.url)
    assert engine.told[-2:] == ["pause_generation", "abort_request"]
    await engines.enter(engine.url)
    assert engine.told.count("abort_request") == 1 + len(module.LATE_SWEEPS_S)
    assert engine.told.index("continue_generation") > len(engine.told) - 1 - engine.told[::-1].index("abort_request")


def test_the_last_engine_does_not_leave_where_holds_are_bounded(store: StoreConfig, tmp_path: Path) -> None:
    catalog = Catalog.open(store)

    async def leave_one_by_one(pair: Pair) -> None:
        engines = Engines(pair.config, store, catalog, Console(quiet=True), 5.0)
        await check_late_calls(engines, pair.first)
        await engines.leave(pair.first.url)
        await engines.leave(pair.second.url)
        assert set(await engines.router.engines()) == {pair.second.url} and not pair.second.paused
        await engines.enter(pair.second.url)
        await engines.enter(pair.first.url)
        assert set(await engines.router.engines()) == {pair.first.url, pair.second.url}
        assert not pair.first.paused and not pair.second.paused, "one that generates again does not stand in"
        await engines.renew()
        assert pair.proxy.told == []
        for _ in range(3):
            await engines.router.take_out(pair.first.url)
            await engines.router.put_in(pair.first.url)
            assert pair.first.url in await engines.router.engines(), "taken out now, it could be overtaken"
        await engines.close()

    with running_pair(tmp_path) as pair:
        asyncio.run(leave_one_by_one(pair))
    catalog.close()


def test_calls_are_held_where_the_engine_that_stays_dies_and_holds_are_not_bounded(
    store: StoreConfig, tmp_path: Path
) -> None:
    catalog = Catalog.open(store)

    async def lose_the_one_that_stays(pair: Pair) -> None:
        engines = Engines(pair.config, store, catalog, Console(quiet=True), None)
        await engines.leave(pair.first.url)
        await engines.keep_one({pair.second.url})
        assert pair.proxy.gate == "closed" and pair.first.paused
        await engines.enter(pair.first.url)
        assert pair.proxy.gate == "open" and not pair.first.paused
        await engines.close()

    with running_pair(tmp_path) as pair:
        asyncio.run(lose_the_one_that_stays(pair))
    catalog.close()


LOAD = "/update_weights_from_disk"


def write_first_version(store: StoreConfig) -> None:
    def fill(folder: Path) -> None:
        make_tiny_model(folder)

    settings = {"parent": 0, "round_id": None, "config_hash": "", "seed": 0, "groups": []}
    write_version(version_path(store.folder, 1), fill, version=1, **settings)


def test_engines_that_all_need_longer_than_calls_are_held_load_in_turns_and_one_that_is_alone_aloud(
    store: StoreConfig, tmp_path: Path
) -> None:
    catalog = Catalog.open(store)
    write_first_version(store)

    async def load(pair: Pair) -> None:
        engines = Engines(pair.config, store, catalog, Console(file=(said := StringIO()), width=400), 0.3)
        both, urls = [pair.first, pair.second], [pair.first.url, pair.second.url]
        for engine in both:
            engine.slow_s = {LOAD: 0.4}
        assert (await engines.load(urls)).failed == {}
        assert [engine.version for engine in both] == ["1", "1"] and not any(engine.paused for engine in both)
        assert set(await engines.router.engines()) == {*urls}
        assert pair.proxy.times_closed == 1, "calls were held for the first try alone"
        assert said.getvalue().count("in turns from now on") == 1
        for engine in both:
            engine.slow_s, engine.told = {}, []
        assert (await engines.load(urls)).failed == {}
        assert pair.proxy.times_closed == 1 and all(engine.told.count(LOAD[1:]) == 1 for engine in both)
        await engines.router.take_out(pair.second.url)
        pair.first.version, pair.first.slow_s = "0", {LOAD: 0.4}
        assert (await engines.load([pair.first.url])).failed == {}
        assert pair.first.version == "1" and not pair.first.paused and pair.proxy.gate == "open"
        assert said.getvalue().count("calls are held until it has loaded") == 1
        await engines.close()

    with running_pair(tmp_path) as pair:
        asyncio.run(load(pair))
    catalog.close()


def test_engines_load_beside_one_that_stays_and_gates_let_tagged_calls_pass(store: StoreConfig, tmp_path: Path) -> None:
    catalog = Catalog.open(store)
    write_first_version(store)

    async def load(pair: Pair) -> None:
        engines = Engines(pair.config, store, catalog, Console(quiet=True), 5.0, serves=True)
        first, second, told = pair.first, pair.second, pair.proxy.told
        assert (await engines.load([first.url])).failed == {}
        assert (
            (first.version, second.version) == ("1", "0") and not first.paused and "pause_generation" not in second.told
        )
        assert told == [
            ("/weir/pause", {"mode": "continue", "serve_passes": True, "lease_s": LEASE_S}),
            ("/weir/resume", {"weight_version": 1}),
        ]
        assert set(await engines.router.engines()) == {first.url, second.url}
        second.fault = "breaks"
        assert list((await engines.load([second.url])).failed) == [second.url]
        assert pair.proxy.gate == "open"
        told.clear()
        await asyncio.to_thread(wait_for_workers, str(pair.config.router_url), {first.url, second.url})
        await engines.router.take_out(second.url)
        assert (await engines.load([first.url])).failed == {}
        assert told[0] == ("/weir/pause", {"mode": "continue", "lease_s": LEASE_S}), (
            "with no other engine all calls are held"
        )
        await engines.close()

    with running_pair(tmp_path) as pair:
        asyncio.run(load(pair))
    catalog.close()


def test_an_engine_that_does_not_pause_costs_the_others_nothing_and_alone_it_stays_in_rotation(
    store: StoreConfig, tmp_path: Path
) -> None:
    catalog = Catalog.open(store)
    write_first_version(store)

    async def load(pair: Pair, stays: str) -> None:
        engines = Engines(pair.config, store, catalog, Console(quiet=True), 5.0, serves=True)
        first, second = pair.first, pair.second
        first.refuses = "/pause_generation"
        assert "500" in (await engines.load([first.url])).failed[first.url]
        assert set(await engines.router.engines()) == {first.url, second.url, stays} and first.version == "0"
        assert list((await engines.load([first.url, second.url])).failed) == [first.url]
        assert second.version == "1" and not second.paused
        assert set(await engines.router.engines()) == {second.url, stays}, "what did not load is lost, and joins again"
        assert pair.proxy.gate == "open"
        await engines.close()

    with running_pair(tmp_path) as pair, loading_engine() as third:
        httpx.post(f"{pair.config.router_url}/workers", json={"url": third.url}, trust_env=False, timeout=60)
        wait_for_workers(str(pair.config.router_url), {pair.first.url, pair.second.url, third.url})
        asyncio.run(load(pair, third.url))
    catalog.close()
