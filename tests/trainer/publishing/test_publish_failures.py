"""Engines that hang, refuse, fail or misreport during a publish; and which version folders are deleted afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rich.console import Console
from support_http import QuietHandler, listening
from support_loading_engine import Fault, LoadingEngine, loading_engine
from support_rounds import Judge, add_group, trainer_config
from support_scripted_proxy import KEY, scripted_proxy

from weir.store.config import StoreConfig
from weir.trainer.http_json import LIMITS, post
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import list_versions, version_path


@pytest.fixture
def engines() -> Iterator[list[LoadingEngine]]:
    with loading_engine() as first, loading_engine() as second:
        yield [first, second]


def numbers(store: StoreConfig) -> list[int]:
    return [version.manifest.version for version in list_versions(store.folder)]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("hangs", "TimeoutError no complete answer within"),
        ("refuses", "the shapes differ"),
        ("breaks", "500"),
        ("reports_another_version", "it reports version 'another' instead of '1'"),
    ],
)
def test_an_engine_that_does_not_load_stays_paused_while_the_others_serve(
    fault: Fault, why: str, engines: list[LoadingEngine], tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    good, bad = engines
    bad.fault = fault
    config = trainer_config(judge, engine_urls=[good.url, bad.url], publish_timeout_s=1.0)
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert report.published.serving == [good.url]
    assert why in report.published.failed[bad.url]
    assert good.told == ["pause_generation", "update_weights_from_disk", "model_info", "continue_generation"]
    assert (good.paused, bad.paused) == (False, True)
    bad.fault = None
    bad.let_go.set()
    assert trainer.publish(report.path).serving == [good.url, bad.url]
    assert (bad.version, bad.paused) == ("1", False)
    trainer.close()


def test_a_router_that_answers_nonsense_keeps_no_gate_closed(
    engines: list[LoadingEngine], tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    with loading_engine() as router, scripted_proxy() as proxy:
        urls = {"engine_urls": [engine.url for engine in engines], "router_url": router.url, "proxy_urls": [proxy.url]}
        config = trainer_config(judge, **urls, control_key=KEY)
        add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
        trainer = Trainer(config, store, model_path=tiny_model_dir)
        for said in ((200, {"workers": 5}), (200, {"workers": [5, {"id": "x"}]}), (500, {})):
            router.reply = lambda path, body, said=said: said  # type: ignore[method-assign, misc]
            report = trainer.run_round()
            published = trainer.publish(version_path(store.folder, 1)) if report is None else report.published
            assert published.serving == urls["engine_urls"]
            assert proxy.gate == "open"
        trainer.close()


def test_old_versions_are_deleted_once_every_engine_acknowledged_a_newer_one(
    engines: list[LoadingEngine], tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    good, bad = engines
    config = trainer_config(judge, engine_urls=[good.url, bad.url], keep_versions=2, groups_per_round=1)
    console = Console(record=True, width=300, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    trainer = Trainer(config, store, model_path=tiny_model_dir, console=console)
    for version in range(5):
        bad.fault = "refuses" if version >= 2 else None  # it acknowledges versions 1 and 2
        add_group(store, tiny_model_dir, f"g{version}", [0.0, 1.0], version=str(version))
        assert trainer.run_round() is not None
    assert numbers(store) == [2, 3, 4, 5]
    assert f"2 old versions are kept: {bad.url} has not acknowledged a newer one" in console.export_text()
    bad.fault = None
    add_group(store, tiny_model_dir, "g5", [0.0, 1.0], version="5")
    assert trainer.run_round() is not None
    assert numbers(store) == [5, 6]
    trainer.close()


def test_a_connection_that_an_engine_may_be_closing_is_not_used_again() -> None:
    """One engine may hang while another one's connection is idle for the 5 s after which uvicorn closes it."""
    ports: list[int] = []

    class Keeping(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            ports.append(self.client_address[1])
            self.answer(200, b"{}")

    async def ask(url: str) -> None:
        async with httpx.AsyncClient(trust_env=False, limits=LIMITS) as http:
            for wait_s in (0.0, 0.0, (LIMITS.keepalive_expiry or 0.0) + 0.2):
                await asyncio.sleep(wait_s)
                await post(http, url, {})

    with listening(Keeping) as url:
        asyncio.run(ask(url))
    assert ports[0] == ports[1] != ports[2]
