"""Engines and training take the same devices in turns: with real engines, and a failure at every step."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support_calls import generate, logprobs_of
from support_engine_relay import EngineRelay, engine_relay
from support_model import make_tiny_model
from support_rounds import Judge, trainer_config
from support_scripted_proxy import KEY, Proxy, scripted_proxy
from support_servers import ServerProcess, start_engine

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import asleep_engines, expected_s, let_go, switches
from weir.store.config import StoreConfig
from weir.trainer.errors import PublishFailed, SwitchFailed
from weir.trainer.publishing.publish import publish
from weir.trainer.publishing.switch import Member, switch

RELEASE, RESUME = "/release_memory_occupation", "/resume_memory_occupation"


class State:
    """Training state that only remembers where it is, and what the engine held then."""

    def __init__(self, engine: ServerProcess) -> None:
        self.engine = engine
        self.refuses: Exception | None = None
        self.stays: Exception | None = None  # what keeps it from going out
        self.steps: list[tuple[str, list[str]]] = []

    def wake(self) -> None:
        self.steps.append(("in", released(self.engine)))
        if self.refuses is not None:
            raise self.refuses

    def sleep(self, needed_bytes: int | None) -> None:
        self.steps.append(("out", released(self.engine)))
        if self.stays is not None:
            raise self.stays


def released(engine: ServerProcess) -> list[str]:
    """What an engine has given back; all where its process is gone."""
    if engine.process.poll() is not None:
        return ["gone"]
    found: list[str] = engine.get("/server_info")["internal_states"][0]["released_memory"]
    return found


def refuse(relay: EngineRelay, path: str) -> None:
    """The engine gets something on this path that it refuses."""
    wrong = {"mode": "never", "tags": ["nothing"]}
    relay.of_request = lambda asked, body: wrong if asked == path else body


def is_paused(engine: ServerProcess) -> bool:
    return engine.get("/server_info")["internal_states"][0]["paused"] is not None


@pytest.fixture(scope="module")
def running(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = start_engine(tiny_model_dir, folder=tmp_path_factory.mktemp("engine"))
    yield started
    started.stop()


@pytest.fixture
def engine(running: ServerProcess, tiny_model_dir: Path) -> ServerProcess:
    running.post("/pause_generation", {"mode": "abort"})
    running.post("/update_weights_from_disk", {"model_path": str(tiny_model_dir), "weight_version": "0"})
    running.post("/continue_generation")
    return running


@pytest.fixture
def relay(engine: ServerProcess) -> Iterator[EngineRelay]:
    with engine_relay(engine.url) as relay:
        yield relay


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with scripted_proxy() as proxy:
        yield proxy


@pytest.fixture
def catalog(store: StoreConfig) -> Iterator[Catalog]:
    catalog = Catalog.open(store)
    yield catalog
    catalog.close()


@pytest.fixture
def member(
    engine: ServerProcess, relay: EngineRelay, proxy: Proxy, store: StoreConfig, catalog: Catalog, judge: Judge
) -> Member:
    config = trainer_config(judge, engine_urls=[relay.url], proxy_urls=[proxy.url], control_key=KEY)
    return Member(name="gpu", config=config, store=store, catalog=catalog, state=State(engine))


def steps_of(member: Member) -> list[tuple[str, list[str]]]:
    assert isinstance(member.state, State)
    return member.state.steps


def test_training_comes_in_after_the_engine_has_let_go_and_leaves_before_it_takes_memory(
    member: Member, engine: ServerProcess, proxy: Proxy, catalog: Catalog
) -> None:
    before = generate(engine)
    gone = switch(member, to="train")
    assert (member.side, proxy.gate, released(engine)) == ("train", "closed", ["kv_cache", "weights"])
    assert list(gone.steps) == ["gates_close", "engines_release", "state_in"]
    assert member.freed_bytes is not None
    back = switch(member, to="rollout")
    assert (member.side, proxy.gate, released(engine)) == ("rollout", "open", [])
    assert steps_of(member) == [("in", ["kv_cache", "weights"]), ("out", ["kv_cache", "weights"])]
    assert logprobs_of(generate(engine)) == logprobs_of(before)
    assert asleep_engines(catalog) == {}
    first, second = switches(catalog)
    assert (first.side, first.error, second.side, second.error) == ("train", None, "rollout", None)
    assert first.seconds == gone.seconds == pytest.approx(sum(first.steps.values()))
    assert expected_s(catalog, "gpu", "rollout") == back.seconds
    assert switch(member, to="rollout").seconds == 0.0


def test_what_engines_had_is_known_to_whoever_comes_after_a_killed_trainer(
    member: Member,
    engine: ServerProcess,
    proxy: Proxy,
    catalog: Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weir.trainer.publishing.switch.RENEW_S", 3600.0)  # that trainer renews nothing
    switch(member, to="train")
    (asleep,) = asleep_engines(catalog).values()
    assert asleep.is_held
    assert asleep.weight_version == "0"
    other = make_tiny_model(tmp_path / "other", seed=7)
    with pytest.raises(PublishFailed, match="training has the devices of"):
        publish(other, 5, member.config, KEY, catalog)
    let_go(catalog, "gpu")  # as time does, once the trainer renews nothing any more
    publish(other, 5, member.config, KEY, catalog)
    assert generate(engine)["meta_info"]["weight_version"] == "5"
    assert asleep_engines(catalog) == {}
    assert proxy.gate == "open"
    switch(member, to="rollout")


@pytest.mark.parametrize("path", ["/pause_generation", RELEASE])
def test_an_engine_that_refuses_keeps_serving_and_training_gets_nothing(
    path: str, member: Member, engine: ServerProcess, relay: EngineRelay, proxy: Proxy
) -> None:
    refuse(relay, path)
    with pytest.raises(SwitchFailed, match=f"{path} answered 400.*the engines have them again"):
        switch(member, to="train")
    relay.as_it_is()
    assert ("in", []) not in steps_of(member)
    assert (proxy.gate, released(engine), is_paused(engine)) == ("open", [], False)
    assert len(generate(engine)["output_ids"]) == 16
    (failed,) = switches(member.catalog)
    assert failed.error is not None


def test_state_that_does_not_come_in_gives_the_devices_back(
    member: Member, engine: ServerProcess, proxy: Proxy, catalog: Catalog
) -> None:
    assert isinstance(member.state, State)
    before = generate(engine)
    member.state.refuses = RuntimeError("CUDA out of memory")
    with pytest.raises(SwitchFailed, match="CUDA out of memory"):
        switch(member, to="train")
    assert (member.side, proxy.gate, released(engine)) == ("rollout", "open", [])
    assert logprobs_of(generate(engine)) == logprobs_of(before)
    assert asleep_engines(catalog) == {}
    assert expected_s(catalog, "gpu", "train") is None


def test_state_that_does_not_go_out_leaves_the_engine_to_the_watch(
    member: Member, relay: EngineRelay, proxy: Proxy, catalog: Catalog, tiny_model_dir: Path
) -> None:
    assert isinstance(member.state, State)
    switch(member, to="train")
    member.state.stays = RuntimeError("CUDA error")
    with pytest.raises(RuntimeError, match="CUDA error"):
        switch(member, to="rollout")
    assert (member.side, proxy.gate) == ("rollout", "open")
    assert not asleep_engines(catalog)[relay.url].is_held
    path, told = proxy.told[-1]
    assert (path, list(told["left_out"])) == ("/weir/resume", [relay.url])
    publish(tiny_model_dir, 5, member.config, KEY, catalog)
    assert asleep_engines(catalog) == {}


def test_an_engine_that_gives_its_memory_back_slowly_is_woken_after_it_has(
    member: Member, relay: EngineRelay, running: ServerProcess, tiny_model_dir: Path, tmp_path: Path
) -> None:
    second = start_engine(tiny_model_dir, folder=tmp_path)
    refused, woken = threading.Event(), threading.Event()
    order: list[str] = []

    def note_refusal(path: str, body: Any) -> Any:
        if path == RELEASE:
            refused.set()
        return body

    def hold(path: str, body: Any) -> Any:
        if path == RELEASE:
            refused.wait()
            woken.wait(0.5)  # long enough to be overtaken, where nothing waits for it
        elif path == RESUME:
            woken.set()
        order.append(path)
        return body

    with engine_relay(second.url) as slow:
        member.config = member.config.model_copy(update={"engine_urls": [relay.url, slow.url]})
        refuse(relay, RELEASE)
        relay.of_answer, slow.of_request = note_refusal, hold
        with pytest.raises(SwitchFailed, match=f"{RELEASE} answered 400"):
            switch(member, to="train")
        assert order.index(RELEASE) < order.index(RESUME)
        assert released(second) == []
    second.stop()


def test_a_gate_that_stays_open_stops_nothing(member: Member, engine: ServerProcess, proxy: Proxy) -> None:
    proxy.refuses = "/weir/pause"
    with pytest.raises(SwitchFailed, match="did not close its gate"):
        switch(member, to="train")
    assert (proxy.gate, released(engine), is_paused(engine)) == ("open", [], False)
    assert steps_of(member) == []


def test_training_takes_the_devices_of_an_engine_that_died_and_the_next_publish_finds_it(
    member: Member, tiny_model_dir: Path, tmp_path: Path, proxy: Proxy
) -> None:
    dies = start_engine(tiny_model_dir, folder=tmp_path)
    member.config = member.config.model_copy(update={"engine_urls": [*member.config.engine_urls, dies.url]})
    dies.kill()
    switch(member, to="train")
    assert member.side == "train"
    again = start_engine(tiny_model_dir, folder=tmp_path, port=dies.port)
    report = switch(member, to="rollout").published
    assert report is not None
    assert (report.serving, report.failed) == (member.config.engine_urls, {})
    again.stop()


def test_an_engine_that_does_not_wake_stays_out_and_the_other_serves(
    member: Member, relay: EngineRelay, tiny_model_dir: Path, tmp_path: Path, proxy: Proxy
) -> None:
    second = start_engine(tiny_model_dir, folder=tmp_path)
    member.config = member.config.model_copy(update={"engine_urls": [*member.config.engine_urls, second.url]})
    switch(member, to="train")
    refuse(relay, RESUME)
    report = switch(member, to="rollout").published
    assert report is not None
    assert report.serving == [second.url]
    assert f"{RESUME} answered 400" in report.failed[relay.url]
    assert asleep_engines(member.catalog).keys() == {relay.url}
    assert not asleep_engines(member.catalog)[relay.url].is_held
    path, told = proxy.told[-1]
    assert (path, list(told["left_out"])) == ("/weir/resume", [relay.url])
    second.stop()


def test_the_gate_is_closed_again_before_its_limit_while_training_lasts(
    member: Member, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.trainer.publishing.switch.RENEW_S", 0.05)
    switch(member, to="train")
    while sum(path == "/weir/pause" for path, _ in proxy.told) < 3:
        time.sleep(0.01)
    held = asleep_engines(member.catalog)
    switch(member, to="rollout")
    assert all(engine.is_held for engine in held.values())


@pytest.fixture
def slept(member: Member, catalog: Catalog, proxy: Proxy) -> Member:
    """The member's engine sleeps, and nobody holds its devices or renews the gates."""
    switch(member, to="train")
    assert member._holding is not None
    member._holding.end()
    let_go(catalog, member.name)
    proxy.told.clear()
    return member


def test_a_publish_that_does_not_reach_the_load_leaves_sleeping_engines_out(
    slept: Member, engine: ServerProcess, relay: EngineRelay, proxy: Proxy, catalog: Catalog, tiny_model_dir: Path
) -> None:
    asked: list[str] = []

    def note(path: str, body: Any) -> Any:
        asked.append(path)
        return body

    relay.of_request = note
    proxy.refuses = "/weir/pause"
    with pytest.raises(PublishFailed, match="did not close its gate"):
        publish(tiny_model_dir, 5, slept.config, KEY, catalog)
    assert asked == []
    assert (is_paused(engine), list(asleep_engines(catalog))) == (True, [relay.url])
    path, told = proxy.told[-1]
    assert (path, list(told["left_out"])) == ("/weir/resume", [relay.url])
    proxy.refuses = None
    relay.as_it_is()
    publish(tiny_model_dir, 5, slept.config, KEY, catalog)
    assert generate(engine)["meta_info"]["weight_version"] == "5"


@pytest.mark.parametrize(("fails", "at"), [("/update_weights_from_disk", 1), (RESUME, 2)])
def test_an_engine_that_wakes_by_half_sleeps_again_and_is_asked_once_for_each_part(
    fails: str,
    at: int,
    slept: Member,
    engine: ServerProcess,
    relay: EngineRelay,
    catalog: Catalog,
    tiny_model_dir: Path,
) -> None:
    asked: list[tuple[str, Any]] = []

    def note(path: str, body: Any) -> Any:
        if path in (RELEASE, RESUME, fails):
            asked.append((path, body.get("tags")))
        return {"tags": ["nothing"]} if [seen for seen, _ in asked].count(fails) == at and path == fails else body

    relay.of_request = note
    with pytest.raises(PublishFailed, match=f"stay paused.*{fails} answered 400"):
        publish(tiny_model_dir, 5, slept.config, KEY, catalog)
    assert asked[0] == (RESUME, ["weights"])
    assert asked[-1] == (RELEASE, ["weights"])
    assert (is_paused(engine), list(asleep_engines(catalog))) == (True, [relay.url])
    assert "weights" in released(engine)
    relay.as_it_is()
    publish(tiny_model_dir, 5, slept.config, KEY, catalog)
    assert (generate(engine)["meta_info"]["weight_version"], released(engine)) == ("5", [])


def test_an_engine_that_has_its_memory_and_reports_another_version_is_not_asked_to_take_it_again(
    slept: Member, engine: ServerProcess, relay: EngineRelay, catalog: Catalog, tiny_model_dir: Path
) -> None:
    relay.of_answer = lambda path, body: body | {"weight_version": "another"} if path == "/model_info" else body
    with pytest.raises(PublishFailed, match="it reports version 'another'"):
        publish(tiny_model_dir, 5, slept.config, KEY, catalog)
    assert (released(engine), asleep_engines(catalog)) == ([], {})
