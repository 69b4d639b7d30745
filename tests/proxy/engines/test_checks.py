"""Whoever lost a call learns when the engines were checked, so that the call does not meet the dead one again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from support_scripted_engine import Script, ScriptedEngine
from support_servers import find_free_port
from support_watched import RouterAndEngine, sleeps, watched

from weir.proxy.engines import router as routing
from weir.proxy.engines import watch as watching
from weir.proxy.engines.gate import Gate
from weir.proxy.engines.router import Liveness, RouterClient, RouterFailed
from weir.proxy.engines.watch import EngineWatch, ended
from weir.store.catalog.devices.switches import asleep_engines, let_go


def test_a_process_that_does_not_watch_waits_for_the_check_of_the_one_that_does(tmp_path: Path) -> None:
    async def run() -> None:
        both = RouterAndEngine()
        async with watched(both, tmp_path) as (watch, catalog, url):
            watch.start()
            await ended(watch.nudge())
            assert watch.watches

            async def ask() -> None:
                await ended(watch.nudge())

            other = EngineWatch(
                *(RouterClient(url), Gate(60.0), catalog, lambda: None, tmp_path, 60.0), ask_watcher=ask
            )
            other.start()
            both.inside = [f"http://127.0.0.1:{find_free_port()}"]
            while both.inside:  # a probe on a slow machine may be silence, which counts after three
                await ended(other.nudge())
            assert not other.watches
            await other.close()
            assert other.nudge().done(), "nothing is checked any more, so nobody may wait for it"

    asyncio.run(asyncio.wait_for(run(), 60))


def test_an_engine_that_dies_while_weights_load_into_another_leaves_the_rotation(tmp_path: Path) -> None:
    async def run() -> None:
        both = RouterAndEngine()
        both.inside = ["http://127.0.0.2:9"]  # nobody listens there
        async with watched(both, tmp_path) as (watch, catalog, url):
            sleeps(catalog, url)
            watch._keep({url: "it was restarted"})
            let_go(catalog, "gpu")
            both.may_load.clear()
            watch.start()
            await both.loading.wait()
            both.inside = ["http://127.0.0.2:9"]
            while both.inside:  # a probe on a slow machine may be silence, which counts after three
                await ended(watch.nudge())
            assert watch._loads, "the weights have loaded before"
            both.may_load.set()
            await asyncio.gather(*watch._loads.values())
            assert not asleep_engines(catalog)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_watch_that_is_closed_ends_the_loads_under_way(tmp_path: Path) -> None:
    async def run() -> None:
        both = RouterAndEngine()
        async with watched(both, tmp_path) as (watch, catalog, url):
            both.inside = [url]
            sleeps(catalog, url)
            let_go(catalog, "gpu")
            both.may_load.clear()
            await watch.check()
            await both.loading.wait()
            await watch.close()
            assert not watch._loads
            both.may_load.set()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_whoever_lost_a_call_waits_until_the_router_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "REQUEST_LIMIT_S", 0.5)

    async def run() -> None:
        both = RouterAndEngine()
        both.inside = ["http://127.0.0.2:9"]  # nobody listens there
        async with watched(both, tmp_path) as (watch, _, _):
            watch.start()
            while not watch._seen:
                await ended(watch.nudge())
            both.silences = 3
            await ended(watch.nudge())
            assert not both.silences

    asyncio.run(asyncio.wait_for(run(), 60))


def test_whoever_lost_a_call_to_an_engine_without_a_router_does_not_wait(tmp_path: Path) -> None:
    async def run() -> None:
        both = RouterAndEngine()
        both.is_router = False
        async with watched(both, tmp_path) as (watch, _, _):
            watch.start()
            for number in (1, 2):
                await ended(watch.nudge())
                assert both.num_listed == number

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_client_that_is_closed_ends_the_request_under_way(tmp_path: Path) -> None:
    async def run() -> None:
        both = RouterAndEngine()
        both.silences = 1
        async with watched(both, tmp_path) as (_, _, url):
            router = RouterClient(url)
            asking = asyncio.create_task(router.engines())
            await both.listing.wait()
            await router.close()
            with pytest.raises(RouterFailed, match="closed meanwhile"):
                await asking

    asyncio.run(asyncio.wait_for(run(), 60))


def test_an_event_loop_that_is_busy_takes_no_engine_for_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "REQUEST_LIMIT_S", 3.0)
    engine = ScriptedEngine(lambda _: Script(ids=[])).start()

    async def run() -> None:
        router = RouterClient(engine.url)
        probing = asyncio.create_task(router.probe(engine.url))
        await asyncio.sleep(0)
        time.sleep(4)  # noqa: ASYNC251 - as a thousand calls do
        assert (await probing).liveness is Liveness.ALIVE
        await router.close()

    asyncio.run(run())
    engine.stop()


def test_a_router_that_does_not_list_an_engine_is_asked_again_and_the_check_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LISTED_LIMIT_S", 0.1)

    async def run() -> None:
        both = RouterAndEngine()
        both.lists = False
        async with watched(both, tmp_path) as (watch, _, url):
            watch._keep({url: "it did not answer"})
            await watch.check()
            assert (both.asked, watch.out()) == ([url], {url: "it did not answer"})
            both.lists = True
            await watch.check()
            assert (both.asked, both.inside, watch.out()) == ([url, url], [url], {})

    asyncio.run(asyncio.wait_for(run(), 60))
