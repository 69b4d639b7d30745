"""Which version the watch over engines takes for the current one, and loads into those that are behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support_watched import RouterAndEngine, check, watched

from weir.proxy.engines.gate import Gate, PauseMode
from weir.proxy.engines.watch import Announced
from weir.store.catalog.catalog import Catalog


def add_version(catalog: Catalog, folder: Path, version: int, published_us: int | None) -> None:
    """A version of the catalog, and whether engines serve it."""
    (folder / "model.safetensors").touch()
    catalog.add_version(version, path=str(folder), parent=None, round_id=None, manifest_sha256="0" * 64)
    if published_us is not None:
        catalog.set_published(version, published_us, [])


@pytest.mark.parametrize(("announced_us", "current"), [(150, "2"), (250, "1")], ids=["published", "announced"])
def test_what_was_announced_or_published_last_is_current(tmp_path: Path, announced_us: int, current: str) -> None:
    """Weights that went to engines out of rotation are announced by no gate; an older version may be announced anew."""

    async def run() -> None:
        both = RouterAndEngine()
        announced = Announced(version="1", at_us=announced_us)
        async with watched(both, tmp_path, announced=announced) as (watch, catalog, url):
            for version in (1, 2):
                add_version(catalog, tmp_path, version, 100 * version)
            both.inside = [url]  # with version 0: it was started anew
            await check(watch)
            await check(watch)
            assert (both.version, both.inside) == (current, [url])

    asyncio.run(run())


def test_where_a_publisher_is_gone_engines_get_what_it_was_to_publish(tmp_path: Path) -> None:
    """An older version would never be enough: an engine that has it may have parts of the newer one."""

    async def run() -> None:
        both, gate = RouterAndEngine(), Gate(60.0)
        both.version = "1"
        announced = Announced(version="1", at_us=200)
        async with watched(both, tmp_path, gate=gate, announced=announced) as (watch, catalog, url):
            add_version(catalog, tmp_path, 1, 100)
            add_version(catalog, tmp_path, 2, None)
            both.inside = [url]
            await gate.close(PauseMode.CONTINUE, 60.0, lease_s=0.01)
            while not gate.is_abandoned:  # noqa: ASYNC110 (a gate tells its proxy)
                await asyncio.sleep(0.01)
            assert await watch.recover() is False and both.inside == []
            await check(watch)
            await check(watch)
            assert (both.version, both.inside) == ("2", [url])
            assert await watch.recover() is True
            gate.open_abandoned()
            watch.leave_out({url: "another process found it so before it opened"})
            await check(watch)
            await check(watch)
            assert (both.version, both.inside, watch.out()) == ("2", [url], {})

    asyncio.run(run())
