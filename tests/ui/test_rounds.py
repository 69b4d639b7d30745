"""A round, a publish and a rollback from the page with a real trainer, engine and proxy; servers now."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect
from support_page import needs_chromium
from support_proxy import CONTROL_KEY, RunningProxy, running_proxy
from support_rounds import add_group
from support_servers import ServerProcess, start_engine
from support_ui import serving

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import RewardRow
from weir.store.config import StoreConfig

pytestmark = needs_chromium

FOR_A_ROUND_MS = 300_000
SETTINGS = """
[store]
root = "{root}"
[proxy]
control_key = "{key}"
upstream_url = "{engine}"
[engine]
count = 0
[model]
path = "{model}"
[trainer]
engine_urls = ["{engine}"]
proxy_urls = ["{proxy}"]
groups_per_round = 1
keep_tokens = "tokens"
torch_threads = 1
[trainer.rewards]
human = {{ stored = true }}
"""


@dataclass
class World:
    """An engine, a proxy over a store with a finished group, and the page over both."""

    page_url: str
    engine: ServerProcess
    proxy: RunningProxy
    store: StoreConfig


@pytest.fixture
def world(tmp_path: Path, tiny_model_dir: Path) -> Iterator[World]:
    store = StoreConfig(root=tmp_path / "store")
    add_group(store, tiny_model_dir, "group", [0.0, 1.0, 1.0, 0.0])
    catalog = Catalog.open(store)
    catalog.add_rewards(
        [
            RewardRow(
                session_id=f"group-{i}", call_id=None, name="human", value=float(i == 1), source="", idempotency_key="k"
            )
            for i in range(4)
        ]
    )
    catalog.close()
    engine = start_engine(tiny_model_dir, folder=tmp_path)
    try:
        with running_proxy(store.root, tiny_model_dir, engine.url) as proxy:
            (store.folder / "weir.toml").write_text(
                SETTINGS.format(
                    root=store.root, key=CONTROL_KEY, engine=engine.url, model=tiny_model_dir, proxy=proxy.url
                )
            )
            with serving(store, refresh_s=0.2) as address:
                yield World(address, engine, proxy, store)
    finally:
        engine.stop()


def version_served(world: World) -> str:
    answer = httpx.get(f"{world.engine.url}/model_info", timeout=60, trust_env=False)
    return str(answer.json()["weight_version"])


def confirm(page: Page, button: str) -> None:
    page.get_by_role("button", name=button).click()
    expect(page.locator(".tag").first).to_have_text("done", timeout=FOR_A_ROUND_MS)


def test_a_round_is_trained_published_again_and_rolled_back_from_the_page(
    page: Page, world: World, tiny_model_dir: Path
) -> None:
    page.set_default_navigation_timeout(FOR_A_ROUND_MS)  # a dry run loads torch
    page.goto(f"{world.page_url}/do/round")
    page.get_by_label("Control key").fill(CONTROL_KEY)
    page.get_by_role("button", name="Log in").click()
    confirm(page, "Start the round")
    assert version_served(world) == "1"
    page.goto(f"{world.page_url}/do/publish?version=1")
    confirm(page, "Publish it")
    publish_other_weights(world, tiny_model_dir)
    assert version_served(world) == "2"
    page.goto(f"{world.page_url}/do/rollback?version=1")
    confirm(page, "Roll back")
    assert version_served(world) == "3", "the weights of version 1 under a new number"
    page.goto(f"{world.page_url}/actions")
    done = page.get_by_role("region", name="What was done")
    expect(done.get_by_role("row")).to_have_count(4)
    expect(done.locator(".tag.good")).to_have_text(["done"] * 3)
    page.goto(world.page_url)
    expect(page.locator("#timeline .lane-train rect")).to_have_count(2)  # the wait for the weights, and training
    expect(page.locator("#timeline .lane-hold rect")).to_have_count(4)
    page.goto(f"{world.page_url}/calls/call-group-1?colour=advantage&token=8")
    shown = page.locator("#token")
    expect(shown).to_contain_text("mask\ntrained", use_inner_text=True)
    expect(shown.locator("div", has_text="advantage").locator("dd")).to_have_text("1.5")
    expect(page.locator(".strip .marked")).to_have_class(re.compile("up1"))


def publish_other_weights(world: World, folder: Path) -> None:
    """As a person would in a terminal, beside the page."""
    command = [sys.executable, "-m", "weir.scripts.cli.main", "publish", str(folder)]
    subprocess.run(command, cwd=world.store.folder, check=True, timeout=600, capture_output=True)


def test_the_servers_are_shown_as_they_are_and_follow(page: Page, world: World) -> None:
    page.goto(world.page_url)
    row = page.locator("#servers tr", has=page.get_by_role("rowheader", name="proxy"))
    expect(row).to_contain_text("gate open")
    expect(page.locator("#servers")).to_contain_text(world.engine.url)
    world.proxy.control("POST", "/weir/pause")
    expect(row).to_contain_text("gate closed")
    world.proxy.control("POST", "/weir/resume")
    expect(row).to_contain_text("gate open")
    world.engine.kill()
    engine = page.locator("#servers tr", has=page.get_by_role("rowheader", name="engine"))
    expect(engine).to_contain_text("not reachable")
