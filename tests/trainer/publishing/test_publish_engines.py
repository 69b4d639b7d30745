"""Real engines that hang, die, cannot read their weights or say what is not so while a version is published.

Two engines stand behind a router, one of them by way of a relay (`support_engine_relay.py`), which brings the trouble
at the very moment that a test is about. What has to come of it is the same each time: the gate opens, the other engine
serves the new version, the one in trouble is named and gets no call, and it is back with the next version.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support_engine_relay import EngineRelay, engine_relay
from support_model import make_tiny_model
from support_rounds import Judge, trainer_config
from support_router import Router, running_router, wait_for_workers
from support_scripted_proxy import KEY, Proxy, scripted_proxy
from support_servers import ServerProcess, start_engine

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.errors import PublishFailed
from weir.trainer.publishing.catalog_entries import serve
from weir.trainer.publishing.gates import LEASE_S
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import version_path, write_version

LOAD, READ_BACK = "/update_weights_from_disk", "/model_info"
LIMIT_S = 5.0  # for an engine to load: what a test waits for one that hangs


@dataclass
class Fleet:
    """Two engines, the relay in front of the second, and the router over the first and the relay."""

    good: ServerProcess
    bad: ServerProcess
    relay: EngineRelay
    router: Router
    model: Path

    @property
    def urls(self) -> list[str]:
        """As the settings name them."""
        return [self.good.url, self.relay.url]

    def tell_bad(self, number: int) -> None:
        """Send the faulty engine a signal."""
        os.killpg(self.bad.process.pid, number)

    def mend(self) -> None:
        """End the fault: a stopped engine continues, a dead one is started again with its first weights."""
        self.relay.as_it_is()
        if self.bad.process.poll() is None:
            self.tell_bad(signal.SIGCONT)
        else:
            self.bad = start_engine(self.model, folder=self.bad.log_path.parent, port=self.bad.port)


def fill(folder: Path, seed: int) -> None:
    """Make the files of a version."""
    make_tiny_model(folder, seed=seed)


@dataclass
class Publisher:
    """Publishes to a fleet as a round does, behind the gate of one proxy."""

    proxy: Proxy
    store: StoreConfig
    catalog: Catalog
    config: TrainerConfig
    said: StringIO = field(default_factory=StringIO)

    def publish(self, number: int) -> PublishReport:
        """Bring weights of their own to the engines, as version `number`."""
        folder = version_path(self.store.folder, number)
        if not folder.exists():
            write_version(
                folder,
                lambda aside: fill(aside, number),
                version=number,
                parent=number - 1,
                round_id=None,
                config_hash="",
                seed=0,
                groups=[],
            )
        return serve(folder, self.catalog, self.store, self.config, Console(file=self.said, width=400))


@pytest.fixture(scope="module")
def running_fleet(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One fleet for the tests of this file."""
    folder = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        good = start_engine(tiny_model_dir, folder=folder)
        stack.callback(good.stop)
        bad = start_engine(tiny_model_dir, folder=folder)
        stack.callback(bad.stop)
        relay = stack.enter_context(engine_relay(bad.url))
        router = stack.enter_context(running_router([good.url, relay.url], folder))
        fleet = Fleet(good, bad, relay, router, tiny_model_dir)
        stack.callback(lambda: fleet.bad.stop())  # which may be another process by then
        yield fleet


@pytest.fixture
def fleet(running_fleet: Fleet) -> Fleet:
    """The fleet as it was started: version 0 on both engines, in the router."""
    running_fleet.mend()
    for engine in (running_fleet.good, running_fleet.bad):
        engine.post(LOAD, {"model_path": str(running_fleet.model), "weight_version": "0"})
        engine.post("/continue_generation")
    wait_for_workers(running_fleet.router.url, set(running_fleet.urls))
    return running_fleet


@pytest.fixture
def publisher(fleet: Fleet, store: StoreConfig, judge: Judge) -> Iterator[Publisher]:
    urls = {"engine_urls": fleet.urls, "router_url": fleet.router.url}
    with scripted_proxy() as proxy:
        config = trainer_config(judge, **urls, proxy_urls=[proxy.url], control_key=KEY, publish_timeout_s=LIMIT_S)
        catalog = Catalog.open(store)
        yield Publisher(proxy, store, catalog, config)
        catalog.close()


def version_of(engine: ServerProcess) -> str:
    return str(engine.get(READ_BACK)["weight_version"])


def answered_by(fleet: Fleet, count: int) -> set[str]:
    """The versions that so many calls through the router, one after the other, were answered under."""
    body = {"input_ids": [10, 11, 12], "sampling_params": {"temperature": 0.0, "max_new_tokens": 2}}
    answers = [fleet.router.process.post("/generate", body) for _ in range(count)]
    return {str(answer["meta_info"]["weight_version"]) for answer in answers}


def at_request(fleet: Fleet, path: str, act: Callable[[], None]) -> None:
    """Do something when the relay has heard a request, before the engine gets it."""

    def of_request(asked: str, body: Any) -> Any:
        if asked == path:
            act()
        return body

    fleet.relay.of_request = of_request


def hangs_before_it_is_paused(fleet: Fleet, publisher: Publisher) -> None:
    publisher.proxy.on_close = lambda: fleet.tell_bad(signal.SIGSTOP)


def hangs_when_it_is_to_load(fleet: Fleet, publisher: Publisher) -> None:
    at_request(fleet, LOAD, lambda: fleet.tell_bad(signal.SIGSTOP))


def dies_when_it_is_to_load(fleet: Fleet, publisher: Publisher) -> None:
    at_request(fleet, LOAD, fleet.bad.kill)


def dies_when_it_has_loaded(fleet: Fleet, publisher: Publisher) -> None:
    def of_answer(path: str, body: Any) -> Any:
        if path == LOAD:
            fleet.bad.kill()
        return body

    fleet.relay.of_answer = of_answer


def finds_half_of_its_weights(fleet: Fleet, publisher: Publisher) -> None:
    def of_request(path: str, body: Any) -> Any:
        if path != LOAD:
            return body
        copy = shutil.copytree(body["model_path"], publisher.store.folder / "copy")
        weights = copy / "model.safetensors"
        os.truncate(weights, weights.stat().st_size // 2)
        return body | {"model_path": str(copy)}

    fleet.relay.of_request = of_request


def says_that_it_serves_another_version(fleet: Fleet, publisher: Publisher) -> None:
    fleet.relay.of_answer = lambda path, body: body | {"weight_version": "7"} if path == READ_BACK else body


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (hangs_before_it_is_paused, "pause_generation: TimeoutError no complete answer within"),
        (hangs_when_it_is_to_load, "update_weights_from_disk: TimeoutError no complete answer within"),
        (dies_when_it_is_to_load, "update_weights_from_disk: RemoteProtocolError"),
        (dies_when_it_has_loaded, "model_info: RemoteProtocolError"),
        (finds_half_of_its_weights, "Weights refused, the old ones stay: cannot read model.safetensors"),
        (says_that_it_serves_another_version, "it reports version '7' instead of '1'"),
    ],
)
def test_an_engine_in_trouble_is_named_and_stays_out_until_the_next_version_brings_it_back(
    trouble: Callable[[Fleet, Publisher], None], why: str, fleet: Fleet, publisher: Publisher
) -> None:
    trouble(fleet, publisher)
    report = publisher.publish(1)
    assert report.serving == [fleet.good.url]
    assert why in report.failed[fleet.relay.url]
    assert f"engine {fleet.relay.url} is paused and out of rotation" in publisher.said.getvalue()
    told = {"weight_version": 1, "left_out": report.failed}
    assert publisher.proxy.told == [("/weir/pause", {"mode": "continue", "lease_s": LEASE_S}), ("/weir/resume", told)]
    assert version_of(fleet.good) == "1"
    wait_for_workers(fleet.router.url, {fleet.good.url})
    assert answered_by(fleet, 4) == {"1"}
    assert publisher.catalog.versions()[-1].engines == [fleet.good.url]

    publisher.proxy.on_close = lambda: None
    fleet.mend()
    assert publisher.publish(2).serving == fleet.urls
    assert (version_of(fleet.good), version_of(fleet.bad)) == ("2", "2")
    wait_for_workers(fleet.router.url, set(fleet.urls))
    assert answered_by(fleet, 4) == {"2"}


def test_weights_that_no_engine_can_read_change_nothing_but_what_is_said(fleet: Fleet, publisher: Publisher) -> None:
    folder = version_path(publisher.store.folder, 1)
    publisher.proxy.on_close = lambda: os.truncate(folder / "model.safetensors", 1000)
    with pytest.raises(PublishFailed, match="no engine serves version 1, all keep the weights they have") as failed:
        publisher.publish(1)
    assert all(url in str(failed.value) for url in fleet.urls)
    assert publisher.proxy.told == [("/weir/pause", {"mode": "continue", "lease_s": LEASE_S}), ("/weir/resume", {})]
    assert (version_of(fleet.good), version_of(fleet.bad)) == ("0", "0")
    wait_for_workers(fleet.router.url, set(fleet.urls))
    assert answered_by(fleet, 4) == {"0"}
    assert publisher.publish(2).serving == fleet.urls
