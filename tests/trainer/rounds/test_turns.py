"""Rounds that take the devices of a real engine in turns with it, also where they fail or are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support_calls import generate
from support_rounds import Judge, add_group, run_in_process, trainer_config
from support_servers import ServerProcess, start_engine

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import asleep_engines, switches
from weir.store.config import StoreConfig
from weir.store.errors import StoreUnavailable
from weir.trainer.errors import NotFinite
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer


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


def released(engine: ServerProcess) -> list[str]:
    found: list[str] = engine.get("/server_info")["internal_states"][0]["released_memory"]
    return found


def version_of(engine: ServerProcess) -> str:
    """The version of an answer: the engine is awake and not paused."""
    state = engine.get("/server_info")["internal_states"][0]
    assert (state["paused"], state["released_memory"]) == (None, []), "a call would wait until its client gives up"
    version: str = generate(engine)["meta_info"]["weight_version"]
    return version


def turns_of(engine: ServerProcess, judge: Judge, **more: object) -> TrainerConfig:
    return trainer_config(judge, groups_per_round=1, engine_urls=[engine.url], takes_turns=True, **more)


def test_rounds_train_while_the_engine_sleeps_and_give_the_bits_of_rounds_beside_it(
    engine: ServerProcess, judge: Judge, store: StoreConfig, tiny_model_dir: Path, tmp_path: Path
) -> None:
    apart = StoreConfig(root=tmp_path / "apart")
    weights = {}
    for one in (store, apart):
        add_group(one, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
        add_group(one, tiny_model_dir, "g2", [0.1, 1.0, 0.3])
        config = turns_of(engine, judge) if one is store else trainer_config(judge, groups_per_round=1)
        seen: dict[str, list[str]] = {}
        trainer = Trainer(
            config.model_copy(update={"keep_state_every": 3}),
            one,
            model_path=tiny_model_dir,
            on_step=lambda name, seen=seen: seen.update({name: released(engine)}),  # type: ignore[misc]
        )
        reports = [trainer.run_round() for _ in range(2)]
        assert all(reports)
        weights[one.root] = [(report.path / "model.safetensors").read_bytes() for report in reports if report]
        if one is store:
            assert seen["judged"] == []
            assert seen["switched"] == seen["trained"] == seen["checkpointed"] == ["kv_cache", "weights"]
            assert seen["published"] == []
            assert version_of(engine) == "2"
            sides = [(row.member, row.side, row.error) for row in switches(trainer.catalog)]
            assert sides == [("round", "train", None), ("round", "rollout", None)] * 2
        trainer.close()
    assert weights[store.root] == weights[apart.root]


def test_a_round_that_fails_leaves_the_engine_serving_and_the_next_start_ends_it(
    engine: ServerProcess, judge: Judge, store: StoreConfig, tiny_model_dir: Path
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])

    def fail(name: str) -> None:
        if name == "trained":
            raise NotFinite("scripted")

    trainer = Trainer(turns_of(engine, judge), store, model_path=tiny_model_dir, on_step=fail)
    with pytest.raises(NotFinite):
        trainer.run_round()
    assert version_of(engine) == "0"
    trainer.on_step = lambda _: None
    report = trainer.run_round()
    assert report is not None
    assert version_of(engine) == "1"
    trainer.close()


@pytest.mark.parametrize("step", ["shared", "version_added"])
def test_an_outage_before_the_version_is_published_leaves_the_engine_serving_what_it_had(
    step: str, engine: ServerProcess, judge: Judge, store: StoreConfig, tiny_model_dir: Path
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])

    def fail(name: str) -> None:
        if name == step:
            raise StoreUnavailable("scripted")

    trainer = Trainer(turns_of(engine, judge), store, model_path=tiny_model_dir, on_step=fail)
    with pytest.raises(StoreUnavailable):
        trainer.run_round()
    assert version_of(engine) == "0"
    trainer.on_step = lambda _: None
    assert trainer.run_round() is None, "the round is finished, and there is no other"
    assert version_of(engine) == "1"
    trainer.close()


@pytest.mark.parametrize("step", ["switched", "trained", "committed"])
def test_a_trainer_killed_while_the_engine_sleeps_is_continued_and_the_engine_serves_its_version(
    step: str, engine: ServerProcess, judge: Judge, store: StoreConfig, tiny_model_dir: Path
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
    config = turns_of(engine, judge)
    assert run_in_process(config, store, tiny_model_dir, kill_at=step) == -9
    assert released(engine) == ["kv_cache", "weights"]
    assert run_in_process(config, store, tiny_model_dir, rounds=None) == 0
    assert version_of(engine) == "1"
    catalog = Catalog.open(store)
    assert asleep_engines(catalog) == {}
    assert [row.round_id for row in catalog.rounds()] == [1]
    catalog.close()
