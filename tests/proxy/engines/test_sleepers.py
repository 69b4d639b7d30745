"""Engines that sleep for training that is gone: the watch brings back those that live, and no call goes to the dead."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support_servers import find_free_port
from support_watched import RouterAndEngine, check, sleeps, watched

from weir.proxy.engines import watch as watching
from weir.proxy.engines.watch import EngineWatch
from weir.store.catalog.devices.switches import asleep_engines, let_go


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    wake_up = watching.wake_up

    def lost(*_: object) -> None:
        raise RuntimeError("the catalog is away")

    async def bring_back(watch: EngineWatch, both: RouterAndEngine) -> None:
        """Once in vain, then with success."""
        both.loads = failing != "load"
        monkeypatch.setattr(watching, "wake_up", lost if failing == "wake_up" else wake_up)
        await check(watch)
        assert ("the catalog is away" in caplog.text) == (failing == "wake_up")
        both.loads = True
        monkeypatch.setattr(watching, "wake_up", wake_up)
        await check(watch)

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
