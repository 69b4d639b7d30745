"""Rollback to an earlier version: a new number, the same weights, and rounds that continue from there."""

from __future__ import annotations

from pathlib import Path

import pytest
from support_rounds import Judge, add_group, trainer_config
from support_servers import EngineFactory, find_free_port

from weir.store.config import StoreConfig
from weir.trainer.errors import PublishFailed, RoundError, TrainerUsageError, VersionError
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import list_versions, verify


def two_rounds(trainer: Trainer, store: StoreConfig, model: Path) -> None:
    for group_id in ("g1", "g2"):
        add_group(store, model, group_id, [0.0, 1.0])
        assert trainer.run_round() is not None


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_the_weights_and_the_optimiser_of_an_earlier_version_become_the_newest(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, engine_server: EngineFactory
) -> None:
    engine = engine_server()
    trainer = Trainer(trainer_config(judge, engine_urls=[engine.url]), store, model_path=tiny_model_dir)
    two_rounds(trainer, store, tiny_model_dir)
    version, report = trainer.roll_back(1)
    first, second, third = list_versions(store.folder)
    assert (version.manifest.version, version.manifest.parent, version.manifest.round) == (3, 1, None)
    assert weights(third.path) == weights(first.path) != weights(second.path)
    assert (third.path / "trainer_state.pt").read_bytes() == (first.path / "trainer_state.pt").read_bytes()
    verify(third.path)
    assert report.serving == [engine.url]
    assert engine.get("/model_info")["weight_version"] == "3"
    assert (store.folder / "versions" / "CURRENT").read_text() == "00000003\n"
    add_group(store, tiny_model_dir, "g3", [0.0, 1.0], version="2")
    again = trainer.run_round()
    assert again is not None
    assert (again.version, again.metrics["parent"]) == (4, 3)
    trainer.close()


def test_what_cannot_be_gone_back_to_is_refused_by_name(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    two_rounds(trainer, store, tiny_model_dir)
    with pytest.raises(TrainerUsageError, match="version 2 is the newest already"):
        trainer.roll_back(2)
    with pytest.raises(TrainerUsageError, match=r"version 7 has no folder.*there are: 1, 2"):
        trainer.roll_back(7)
    damaged = list_versions(store.folder)[0].path / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(VersionError, match=r"model\.safetensors"):
        trainer.roll_back(1)
    assert [version.manifest.version for version in list_versions(store.folder)] == [1, 2]
    trainer.close()


def test_an_open_round_is_finished_first(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    trainer = Trainer(trainer_config(judge, groups_per_round=1), store, model_path=tiny_model_dir)
    two_rounds(trainer, store, tiny_model_dir)
    add_group(store, tiny_model_dir, "g3", [0.0, 1.0], version="2")
    judge.out_of_order = True
    with pytest.raises(Exception, match="the round stays open"):
        trainer.run_round()
    with pytest.raises(RoundError, match="round 3 is open"):
        trainer.roll_back(1)
    trainer.close()


def test_a_way_back_that_no_engine_heard_of_is_published_by_the_next_round(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, engine_server: EngineFactory
) -> None:
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    two_rounds(trainer, store, tiny_model_dir)
    trainer.config = trainer_config(judge, engine_urls=[f"http://127.0.0.1:{find_free_port()}"])
    with pytest.raises(PublishFailed):
        trainer.roll_back(1)
    engine = engine_server()
    trainer.config = trainer_config(judge, engine_urls=[engine.url])
    assert trainer.run_round() is None
    assert engine.get("/model_info")["weight_version"] == "3"
    trainer.close()
