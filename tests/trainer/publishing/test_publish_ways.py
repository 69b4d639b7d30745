"""A version reaches real engines through shared memory or a process group as it does by its folder, bit for bit."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from sglang_server import needs_sglang, start_sglang
from support_calls import body_of as call_body
from support_calls import generate, logprobs_of, streamed, versions_of
from support_engine_relay import EngineRelay, engine_relay
from support_model import make_tiny_model
from support_rounds import Judge, trainer_config
from support_samples import make_samples
from support_scripted_proxy import KEY, Proxy, scripted_proxy
from support_servers import ServerProcess, start_engine

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.weight_groups import noted_groups
from weir.store.config import StoreConfig
from weir.trainer.errors import PublishFailed
from weir.trainer.learner.torchrun import TorchrunLearner
from weir.trainer.publishing.attempts import Attempt
from weir.trainer.publishing.catalog_entries import serve
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.publishing.weight_source import WeightSource
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.publishing import PublishConfig
from weir.trainer.versions.version_folder import version_path, write_version

TENSOR, BROADCAST = "/update_weights_from_tensor", "/update_weights_from_distributed"
Answer = list[tuple[list[int], list[float]]]


class Engines(NamedTuple):
    first: ServerProcess
    second: ServerProcess
    relay: EngineRelay  # in front of the second

    @property
    def urls(self) -> list[str]:
        return [self.first.url, self.relay.url]


@pytest.fixture(scope="module")
def running(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """One pair of engines for the tests of this file; one of them computes in bfloat16."""
    folder = tmp_path_factory.mktemp("engines")
    first = start_engine(tiny_model_dir, folder=folder)
    second = start_engine(tiny_model_dir, folder=folder, arguments=("--dtype", "bfloat16"))
    with engine_relay(second.url) as relay:
        yield Engines(first, second, relay)
    first.stop()
    second.stop()


@pytest.fixture
def engines(running: Engines, tiny_model_dir: Path) -> Engines:
    """The engines as they were started: version 0, no pause, no fault."""
    start_over(running, tiny_model_dir)
    return running


def start_over(engines: Engines, tiny_model_dir: Path) -> None:
    engines.relay.as_it_is()
    for engine in engines[:2]:
        os.killpg(engine.process.pid, signal.SIGCONT)
        engine.post("/abort_request", {"abort_all": True})
        engine.post("/continue_generation")
        engine.post("/update_weights_from_disk", {"model_path": str(tiny_model_dir), "weight_version": "0"})


class Publisher:
    """Publishes weights of their own as versions, behind the gate of one proxy."""

    def __init__(self, proxy: Proxy, store: StoreConfig, judge: Judge, urls: list[str]) -> None:
        self.proxy, self.store, self.catalog = proxy, store, Catalog.open(store)
        self.settings: dict[str, Any] = {"engine_urls": urls, "proxy_urls": [proxy.url], "control_key": KEY}
        self.judge = judge
        self.said = StringIO()

    def publish(
        self, number: int, way: str, *, limit_s: float = 60.0, tied: bool = True, ranks: TorchrunLearner | None = None
    ) -> PublishReport:
        folder = version_path(self.store.folder, number)
        if not folder.exists():
            write_version(
                folder,
                lambda aside: make_tiny_model(aside, seed=number, tied=tied) and None,
                version=number,
                parent=number - 1,
                round_id=None,
                config_hash="",
                seed=0,
                groups=[],
            )
        shared: dict[str, Any] = {"by_ranks": ranks is not None or way == "gone"}
        way = "beside" if way == "gone" else way
        shared |= {"shared_memory": False} if way == "distributed" else {}  # by sockets, as to other machines
        way = "distributed" if way == "beside" else way
        publish = PublishConfig.model_validate({"way": way, "bucket_mb": 1} | shared)
        config = trainer_config(self.judge, **self.settings, publish=publish, publish_timeout_s=limit_s)
        return serve(folder, self.catalog, self.store, config, Console(file=self.said, width=400), ranks=ranks)


@pytest.fixture
def publisher(engines: Engines, store: StoreConfig, judge: Judge) -> Iterator[Publisher]:
    with scripted_proxy() as proxy:
        publisher = Publisher(proxy, store, judge, engines.urls)
        yield publisher
        publisher.catalog.close()


def answers_of(engine: ServerProcess) -> Answer:
    """Ids and logprobs of greedy calls and of one that draws."""
    asked: list[dict[str, Any]] = [{}, {"max_new_tokens": 40}, {"temperature": 1.0, "sampling_seed": 7}]
    answers = [generate(engine, **sampling) for sampling in asked]
    return [(answer["output_ids"], logprobs_of(answer)) for answer in answers]


@pytest.mark.parametrize("way", ["ipc", "distributed", "auto"])
def test_answers_equal_those_after_a_load_by_disk_bit_for_bit(way: str, engines: Engines, publisher: Publisher) -> None:
    assert publisher.publish(1, "disk").ways == dict.fromkeys(engines.urls, "disk")
    expected = [answers_of(engine) for engine in engines[:2]]
    sums = [engine.post("/weights_checker")["ranks"] for engine in engines[:2]]
    publisher.publish(2, "disk")
    assert [answers_of(engine) for engine in engines[:2]] != expected

    report = publisher.publish(1, way)
    assert report.serving == engines.urls
    assert (report.failed, report.fallbacks) == ({}, {})
    assert report.ways == dict.fromkeys(engines.urls, "tensor" if way == "auto" else way)
    assert [engine.get("/model_info")["weight_version"] for engine in engines[:2]] == ["1", "1"]
    assert [answers_of(engine) for engine in engines[:2]] == expected
    assert [engine.post("/weights_checker")["ranks"] for engine in engines[:2]] == sums
    assert f"({report.ways[engines.urls[0]]}: 2)" in publisher.said.getvalue()


def test_a_group_has_only_the_engines_that_share_no_memory_with_the_trainer(
    engines: Engines, publisher: Publisher
) -> None:
    asked: list[str] = []

    def note(path: str, body: Any) -> Any:
        asked.append(path)
        return body

    def elsewhere(path: str, body: Any) -> Any:
        return body | {"shared_memory": None} if path == "/server_info" else body

    engines.relay.of_request, engines.relay.of_answer = note, elsewhere
    report = publisher.publish(1, "beside")
    assert report.ways == dict.fromkeys(engines.urls, "distributed")
    assert (BROADCAST in asked, TENSOR in asked) == (True, False)
    num_bytes = (version_path(publisher.store.folder, 1) / "model.safetensors").stat().st_size
    assert 1.9 * num_bytes < report.bytes_sent < 2.1 * num_bytes, "once into memory, once over the group's sockets"
    publisher.publish(2, "beside")
    assert engines.first.get("/model_info")["weight_version"] == "2"
    report = publisher.publish(1, "gone")
    assert report.fallbacks == {engines.relay.url: "no ranks hold it, and the folder's bytes were sent"}
    assert report.serving == engines.urls


def sums_of_both(engines: Engines) -> list[Any]:
    return [engine.post("/weights_checker")["ranks"] for engine in engines[:2]]


def trained_ranks(model: Path, folder: Path) -> TorchrunLearner:
    """Two ranks that have trained, and saved what they hold as the version of a folder."""
    ranks = TorchrunLearner(model, TrainerConfig(processes=2, device="cpu", token_budget=60))
    ranks.train(make_samples(model, [(4, 6), (7, 3)], seed=1), fresh_version=0, seed=1)
    rest: dict[str, Any] = {"round_id": None, "config_hash": "", "seed": 0, "groups": []}
    write_version(folder, lambda aside: ranks.save(aside) and None, version=5, parent=4, **rest)
    ranks.folder = folder
    return ranks


def test_each_rank_sends_what_it_owns_and_where_one_dies_the_folders_bytes_are_sent(
    engines: Engines, publisher: Publisher, tiny_model_dir: Path
) -> None:
    folder = version_path(publisher.store.folder, 5)
    ranks = trained_ranks(tiny_model_dir, folder)
    publisher.publish(5, "disk")
    expected = sums_of_both(engines)
    groups: list[str] = []

    def note(path: str, body: Any) -> Any:
        groups.extend([body["group_name"]] if path == BROADCAST else [])
        return body

    start_over(engines, tiny_model_dir)
    engines.relay.of_request = note
    report = publisher.publish(5, "distributed", ranks=ranks)
    assert report.ways == dict.fromkeys(engines.urls, "distributed")
    assert (report.serving, report.failed, report.fallbacks) == (engines.urls, {}, {})
    assert (report.num_sending_ranks, len({*groups})) == (2, 2), "one group for each owner"
    assert "(distributed: 2; sent by 2 ranks)" in publisher.said.getvalue()
    assert groups[0] != groups[1], "they send in turn"
    num_buckets = len(groups)
    assert sums_of_both(engines) == expected
    num_bytes = (folder / "model.safetensors").stat().st_size
    assert 1.9 * num_bytes < report.bytes_sent < 2.1 * num_bytes

    engines.relay.of_answer = refuses(BROADCAST)
    report = publisher.publish(5, "distributed", ranks=ranks)
    assert report.failed == {engines.relay.url: "it refused the weights: no room"}
    assert (report.serving, report.num_sending_ranks) == ([engines.first.url], 2)
    assert ranks.is_alive, "a rank does not fail because an engine does"

    processes = psutil.Process().children(recursive=True)
    of_ranks = [process for process in processes if any("rank_main" in word for word in process.cmdline())]

    def kill(path: str, body: Any) -> Any:
        groups.extend([""] if path == BROADCAST else [])
        if len(groups) == num_buckets and of_ranks:  # the first engine may have all bytes by then
            of_ranks.pop().kill()
            of_ranks.clear()
        return body

    start_over(engines, tiny_model_dir)
    groups.clear()
    engines.relay.of_request = kill
    report = publisher.publish(5, "distributed", ranks=ranks, limit_s=20.0)
    assert (of_ranks, ranks.is_alive) == ([], False)
    assert (report.serving, report.num_sending_ranks) == (engines.urls, 0)
    assert all("the folder's bytes were sent instead" in report.fallbacks[url] for url in engines.urls)
    assert sums_of_both(engines) == expected


@pytest.mark.parametrize("way", ["tensor", "distributed"])
def test_the_tensors_arrive_before_the_gate_closes_and_change_nothing_until_the_switch(
    way: str, engines: Engines, publisher: Publisher
) -> None:
    steps: list[str] = []

    def note(path: str, body: Any) -> Any:
        steps.append(path)
        return body

    engines.relay.of_request = note
    publisher.proxy.on_close = lambda: steps.append("closed")
    with streamed(engines.first, call_body(max_new_tokens=400)) as call:
        call.wait_for(5)
        publisher.publish(1, way)
        answer = call.last()
    sent = {"tensor": TENSOR, "distributed": BROADCAST}[way]
    assert steps.index(sent) < steps.index("closed") < steps.index("/pause_generation")
    assert steps.index("/pause_generation") < steps.index("/end_weight_update")
    assert sent not in steps[steps.index("closed") :]
    assert set(versions_of(answer)) == {"0"}


def dies(engines: Engines, path: str) -> Callable[[str, Any], Any]:
    """The answer does not come: as an engine that is killed while it receives."""

    def act(asked: str, body: Any) -> Any:
        if asked == path:
            os.killpg(engines.second.process.pid, signal.SIGSTOP)
        return body

    return act


@pytest.mark.parametrize(("way", "path"), [("tensor", TENSOR), ("distributed", BROADCAST)])
def test_an_engine_that_hangs_while_it_receives_is_left_out_and_the_others_get_the_version(
    way: str, path: str, engines: Engines, publisher: Publisher
) -> None:
    engines.relay.of_request = dies(engines, path)
    report = publisher.publish(1, way, limit_s=15.0)  # what the engine that does not hang may take
    assert report.serving == [engines.first.url]
    assert set(report.failed) == {engines.relay.url}
    assert engines.first.get("/model_info")["weight_version"] == "1"
    assert publisher.proxy.gate == "open"
    assert report.gate_closed_s < 5.0, "closed gates wait for no engine that had failed before"


def is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines are not asked to leave their groups any more."""

    async def leave(*_: Any, **__: Any) -> dict[str, str]:
        return {}

    monkeypatch.setattr(Attempt, "leave", leave)


def test_engines_leave_the_group_of_a_publisher_that_was_killed_also_one_that_does_not_name_it(
    engines: Engines, publisher: Publisher
) -> None:
    engines.relay.of_answer = lambda path, body: body | {"weight_groups": None} if path == "/server_info" else body
    with pytest.MonkeyPatch.context() as killed:
        is_killed(killed)
        publisher.publish(1, "distributed")
    (left,) = engines.second.get("/server_info")["weight_groups"]
    assert engines.first.get("/server_info")["weight_groups"] == [left]
    assert noted_groups(publisher.catalog) == {engines.relay.url: (left,)}
    assert publisher.publish(2, "distributed").serving == engines.urls
    for engine in engines[:2]:
        assert engine.get("/server_info")["weight_groups"] == []
    assert noted_groups(publisher.catalog) == {}


def refuses(path: str) -> Callable[[str, Any], Any]:
    return lambda asked, body: body | {"success": False, "message": "no room"} if asked == path else body


def test_auto_says_which_engine_went_another_way_and_why(engines: Engines, publisher: Publisher) -> None:
    engines.relay.of_answer = refuses(TENSOR)
    report = publisher.publish(1, "auto")
    assert report.serving == engines.urls
    assert report.ways == {engines.first.url: "tensor", engines.relay.url: "disk"}
    assert report.fallbacks == {engines.relay.url: "tensor failed: it refused the weights: no room"}
    assert "(disk: 1, tensor: 1)" in publisher.said.getvalue()
    assert f"engine {engines.relay.url} got version 1 by disk: tensor failed" in publisher.said.getvalue()


def test_a_way_that_is_asked_for_by_name_has_no_other_behind_it(engines: Engines, publisher: Publisher) -> None:
    engines.relay.of_answer = refuses(TENSOR)
    report = publisher.publish(1, "tensor")
    assert report.failed == {engines.relay.url: "it refused the weights: no room"}
    assert engines.second.get("/model_info")["weight_version"] == "0"


@pytest.mark.parametrize("way", ["tensor", "distributed"])
def test_weights_of_another_model_are_refused_and_the_old_ones_stay(
    way: str, engines: Engines, publisher: Publisher
) -> None:
    before = engines.first.post("/weights_checker")
    with pytest.raises(PublishFailed, match=r"lm_head\.weight differs from|no engine serves version 3"):
        publisher.publish(3, way, tied=False)
    assert publisher.proxy.gate == "open"
    assert engines.first.post("/weights_checker") == before
    assert publisher.publish(1, way).serving == engines.urls


def spoil_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = WeightSource._fill

    def spoil(source: WeightSource, flat: torch.Tensor, entries: Any) -> None:
        fill(source, flat, entries)
        flat[entries[0].start_idx + 2] ^= 1  # a bit of one value that bfloat16 keeps

    monkeypatch.setattr(WeightSource, "_fill", spoil)


def test_what_arrives_otherwise_than_it_was_sent_is_never_served(
    engines: Engines, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_buckets(monkeypatch)
    before = engines.first.post("/weights_checker")
    with pytest.raises(PublishFailed, match="1 tensors arrived otherwise than they were sent"):
        publisher.publish(1, "tensor")
    assert engines.first.post("/weights_checker") == before
    assert engines.first.get("/model_info")["weight_version"] == "0"
    report = publisher.publish(1, "auto")
    assert report.ways == dict.fromkeys(engines.urls, "disk")
    assert all("arrived otherwise" in why for why in report.fallbacks.values())
    assert engines.first.get("/model_info")["weight_version"] == "1"


def sums_in_sglang(folder: Path) -> dict[str, str]:
    """What SGLang's checksums are with a folder's tensors: 64 bits of SHA-256; some of its own hold several."""
    parts: dict[str, list[torch.Tensor]] = {}
    tensors = load_file(folder / "model.safetensors")
    for own, names in {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}.items():
        for name in [name for name in tensors if f".{names[0]}." in name]:
            joined = [tensors.pop(name.replace(names[0], part)) for part in names]
            parts[name.replace(names[0], own)] = joined
    parts |= {name: [tensor] for name, tensor in tensors.items()}
    return {
        name: hashlib.sha256(b"".join(part.numpy().tobytes() for part in held)).hexdigest()[:16]
        for name, held in parts.items()
    }


def sums_of(sglang: ServerProcess) -> dict[str, str]:
    (rank,) = sglang.post("/weights_checker", {"action": "checksum"})["ranks"]
    found: dict[str, str] = rank["checksums"]
    return found


@needs_sglang
@pytest.mark.sglang
def test_a_real_sglang_holds_the_published_bytes_and_answers_as_after_a_load_by_disk(
    tiny_model_dir: Path, tmp_path: Path, store: StoreConfig, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    sglang = start_sglang(tiny_model_dir, folder=tmp_path, arguments=("--weight-version", "0"))
    try:
        with scripted_proxy() as proxy:
            publisher = Publisher(proxy, store, judge, [sglang.url])
            publisher.publish(1, "disk")
            expected = answers_of(sglang)[:2]
            published = sums_in_sglang(version_path(store.folder, 1))
            assert sums_of(sglang) == published
            for way in ("tensor", "distributed", "auto", "delta", "adapter"):
                publisher.publish(2, "disk")
                assert answers_of(sglang)[:2] != expected
                assert sums_of(sglang) == sums_in_sglang(version_path(store.folder, 2)) != published
                report = publisher.publish(1, way)
                assert report.ways == {sglang.url: way if way in ("tensor", "distributed") else "tensor"}
                assert bool(report.fallbacks) == (way in ("delta", "adapter"))
                assert sglang.get("/model_info")["weight_version"] == "1"
                assert sums_of(sglang) == published
                assert answers_of(sglang)[:2] == expected
            with pytest.MonkeyPatch.context() as killed:
                is_killed(killed)
                publisher.publish(1, "distributed")
            ((left,),) = noted_groups(publisher.catalog).values()
            assert publisher.publish(1, "distributed").serving == [sglang.url]
            assert noted_groups(publisher.catalog) == {}
            answer = sglang.client.post("/destroy_weights_update_group", json={"group_name": left})
            assert "does not exist" in answer.text, "it has left it"
            spoil_buckets(monkeypatch)
            for way in ("tensor", "distributed"):
                with pytest.raises(PublishFailed, match="1 tensors differ from the published ones, model"):
                    publisher.publish(2, way)
            report = publisher.publish(2, "auto")
            assert report.ways == {sglang.url: "disk"}
            assert report.fallbacks[sglang.url].startswith("tensor failed: 1 tensors differ from the published ones")
            assert sums_of(sglang) == sums_in_sglang(version_path(store.folder, 2))
            publisher.catalog.close()
    finally:
        sglang.stop()
