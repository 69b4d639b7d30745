"""Only what changed is sent, and the engines' weights are then those of a whole publish, bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from support_engine_relay import EngineRelay, engine_relay
from support_model import make_tiny_model
from support_rounds import Judge, trainer_config
from support_scripted_proxy import KEY, Proxy, scripted_proxy
from support_servers import ServerProcess, start_engine

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.publishing.catalog_entries import serve
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.settings.publishing import PublishConfig
from weir.trainer.versions.version_folder import Version, version_path, write_version

WEIGHTS = "model.safetensors"
DELTA = "/update_weights_from_delta"


class Engines:
    """One engine in float32 behind a relay, one in bfloat16, and the paths that the relay saw."""

    def __init__(self, wide: ServerProcess, narrow: ServerProcess, relay: EngineRelay) -> None:
        self.wide, self.narrow, self.relay = wide, narrow, relay
        self.urls = [relay.url, narrow.url]
        self.asked: list[str] = []

    def note(self, path: str, body: Any) -> Any:
        self.asked.append(path)
        return body

    def sums(self) -> list[Any]:
        return [engine.post("/weights_checker")["ranks"] for engine in (self.wide, self.narrow)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    folder = tmp_path_factory.mktemp("engines")
    model = make_tiny_model(folder / "model", seed=9)
    wide = start_engine(model, folder=folder, arguments=("--dtype", "float32"))
    narrow = start_engine(model, folder=folder, arguments=("--dtype", "bfloat16"))
    with engine_relay(wide.url) as relay:
        yield Engines(wide, narrow, relay)
    wide.stop()
    narrow.stop()


class Publisher:
    """Writes versions that differ in few values, and publishes them."""

    def __init__(self, proxy: Proxy, store: StoreConfig, judge: Judge, urls: list[str]) -> None:
        self.store, self.catalog = store, Catalog.open(store)
        self.config = trainer_config(judge, engine_urls=urls, proxy_urls=[proxy.url], control_key=KEY)
        self.said = StringIO()

    def folder(self, number: int) -> Path:
        return version_path(self.store.folder, number)

    def write(self, number: int, *, dtype: torch.dtype = torch.bfloat16, base: Version | None = None) -> Version:
        def fill(aside: Path) -> None:
            make_tiny_model(aside, seed=1)
            tensors = {name: tensor.to(dtype) for name, tensor in load_file(aside / WEIGHTS).items()}
            for tensor in tensors.values():
                tensor.view(-1)[::97] += number
            save_file(tensors, aside / WEIGHTS, metadata={"format": "pt"})

        settings: dict[str, Any] = {"parent": number - 1, "round_id": None, "config_hash": "", "seed": 0, "groups": []}
        return write_version(self.folder(number), fill, version=number, base=base, **settings)

    def publish(self, number: int, way: str) -> PublishReport:
        publish = PublishConfig.model_validate({"way": way, "bucket_mb": 1})
        config = self.config.model_copy(update={"publish": publish})
        return serve(self.folder(number), self.catalog, self.store, config, Console(file=self.said, width=400))


@pytest.fixture
def engines(running: Engines) -> Engines:
    running.relay.as_it_is()
    running.relay.of_request = running.note
    running.asked.clear()
    return running


@pytest.fixture
def publisher(engines: Engines, store: StoreConfig, judge: Judge) -> Iterator[Publisher]:
    with scripted_proxy() as proxy:
        publisher = Publisher(proxy, store, judge, engines.urls)
        yield publisher
        publisher.catalog.close()


@pytest.mark.parametrize("stored", [True, False])
def test_weights_are_those_of_a_whole_publish_bit_for_bit(stored: bool, engines: Engines, publisher: Publisher) -> None:
    first = publisher.write(1)
    publisher.write(2, base=first if stored else None)
    publisher.publish(2, "disk")
    expected = engines.sums()
    publisher.publish(1, "disk")
    assert engines.sums() != expected

    engines.asked.clear()
    report = publisher.publish(2, "delta")
    assert report.ways == dict.fromkeys(engines.urls, "delta")
    assert (report.serving, report.failed, report.fallbacks) == (engines.urls, {}, {})
    assert engines.sums() == expected
    assert 0 < report.bytes_sent < 2 * 0.1 * (publisher.folder(2) / WEIGHTS).stat().st_size  # to two engines
    assert DELTA in engines.asked
    assert not {"/update_weights_from_tensor", "/update_weights_from_disk"} & set(engines.asked)
    assert [engine.get("/model_info")["weight_version"] for engine in (engines.wide, engines.narrow)] == ["2", "2"]
    assert publisher.publish(1, "delta").ways == dict.fromkeys(engines.urls, "delta")  # back to an older one, too
    assert publisher.publish(2, "delta").fallbacks == {}
    assert engines.sums() == expected


def whole_instead(report: PublishReport, engines: Engines, expected: list[Any], why: str) -> None:
    """Both engines got the version whole, and the report says why the first was not sent the difference."""
    assert report.serving == engines.urls
    assert engines.sums() == expected
    assert report.ways[engines.relay.url] == "tensor"
    assert why in report.fallbacks[engines.relay.url]


def test_an_engine_that_has_other_weights_than_its_version_says_gets_all(
    engines: Engines, publisher: Publisher, tmp_path: Path
) -> None:
    for number in (1, 2):
        publisher.write(number)
    publisher.publish(2, "disk")
    expected = engines.sums()
    publisher.publish(1, "disk")
    other = make_tiny_model(tmp_path / "other", seed=77)
    engines.wide.post("/update_weights_from_disk", {"model_path": str(other), "weight_version": "1"})
    report = publisher.publish(2, "delta")
    whole_instead(report, engines, expected, "delta failed")
    assert report.ways[engines.narrow.url] == "delta"
    assert f"engine {engines.relay.url} got version 2 by tensor: delta failed" in publisher.said.getvalue()


def test_bits_that_an_engine_does_not_hold_are_sent_whole(engines: Engines, publisher: Publisher) -> None:
    for number in (1, 2):
        publisher.write(number, dtype=torch.float32)
    publisher.publish(2, "disk")
    expected = engines.sums()
    publisher.publish(1, "disk")
    report = publisher.publish(2, "delta")
    assert report.ways == {engines.relay.url: "delta", engines.narrow.url: "tensor"}
    assert "served in torch.bfloat16, which has not the bits of torch.float32" in report.fallbacks[engines.narrow.url]
    assert engines.sums() == expected


def no_base(publisher: Publisher, engines: Engines) -> None:
    shutil.rmtree(publisher.folder(1))


def damaged(publisher: Publisher, engines: Engines) -> None:
    file = publisher.folder(2) / f"{WEIGHTS}.delta"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)


def cut_off(publisher: Publisher, engines: Engines) -> None:
    file = publisher.folder(2) / f"{WEIGHTS}.delta"
    file.write_bytes(file.read_bytes()[:-7])


def takes_none(publisher: Publisher, engines: Engines) -> None:
    engines.relay.of_answer = lambda path, body: (
        body | {"delta_weight_updates": False} if path == "/server_info" else body
    )


def refuses(publisher: Publisher, engines: Engines) -> None:
    engines.relay.of_answer = lambda path, body: body | {"success": False} if path == DELTA else body


def made_again(publisher: Publisher, engines: Engines) -> None:
    """The base is another version now than the one that the engines were given."""
    shutil.rmtree(publisher.folder(1))
    publisher.write(1, dtype=torch.float32)


@pytest.mark.parametrize(
    ("harm", "stored", "why"),
    [
        (no_base, False, "the store has no whole model.safetensors of that one"),
        (made_again, False, "whose model.safetensors holds other tensors"),
        (damaged, True, "delta failed"),
        (cut_off, True, "bytes too early"),
        (takes_none, True, "it takes no differences; `weir stage` beside it does"),
        (refuses, True, "it refused the weights"),
    ],
)
def test_where_there_is_no_difference_all_is_sent_and_the_reason_is_named(
    harm: Any, stored: bool, why: str, engines: Engines, publisher: Publisher
) -> None:
    first = publisher.write(1)
    publisher.write(2, base=first if stored else None)
    publisher.publish(2, "disk")
    expected = engines.sums()
    publisher.publish(1, "disk")
    harm(publisher, engines)
    whole_instead(publisher.publish(2, "delta"), engines, expected, why)


def test_an_engine_that_serves_no_version_of_the_store_gets_all(engines: Engines, publisher: Publisher) -> None:
    publisher.write(1)
    publisher.publish(1, "disk")
    expected = engines.sums()
    engines.wide.post("/update_weight_version", {"new_version": "mine"})
    whole_instead(
        publisher.publish(1, "delta"), engines, expected, "it serves 'mine', which is no version of the store"
    )
