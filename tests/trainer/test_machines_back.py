"""Replays and rollbacks on another machine, where machines share a store in S3."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support_loading_engine import loading_engine
from support_rounds import Judge, add_group, trainer_config
from support_s3 import S3Server

from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.trainer.errors import RoundError
from weir.trainer.rounds.replay import Replay
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer
from weir.trainer.versions.object_store import delete_old_shared_versions, fetch_newest
from weir.trainer.versions.version_folder import list_versions, verify

Machine = Callable[[str], StoreConfig]


@pytest.fixture
def machine(s3: S3Server, postgres_url: str, tmp_path: Path) -> Machine:
    """The settings of a machine: a folder of its own, the root and the catalog of all."""
    shared = {"root": s3.new_root(), "s3_endpoint": s3.url, "catalog_url": postgres_url, "segment_grace_s": 0}
    return lambda name: StoreConfig.model_validate({**shared, "local_folder": tmp_path / name})


def run_two_rounds(store: StoreConfig, config: TrainerConfig, model: Path) -> None:
    for group_id in ("g1", "g2"):
        add_group(store, model, group_id, [0.0, 0.3, 1.0])
    compact(store)
    trainer = Trainer(config, store, model_path=model)
    assert [trainer.run_round() is not None for _ in range(2)] == [True, True]
    trainer.close()


def replay(store: StoreConfig, config: TrainerConfig, number: int, model: Path) -> Replay:
    trainer = Trainer(config, store, model_path=model)
    try:
        return trainer.replay(number)
    finally:
        trainer.close()


def test_rounds_of_one_machine_repeat_bit_for_bit_on_another(
    machine: Machine, tiny_model_dir: Path, judge: Judge
) -> None:
    config = trainer_config(judge, groups_per_round=1)
    run_two_rounds(machine("a"), config, tiny_model_dir)
    shutil.rmtree(machine("a").folder / "versions")
    for name in ("a", "b"):
        for number in (1, 2):
            assert replay(machine(name), config, number, tiny_model_dir).differing == []
    delete_old_shared_versions(machine("a"), 1, below=None)
    shutil.rmtree(machine("a").folder)
    assert replay(machine("c"), config, 1, tiny_model_dir).differing == [], "what its files were is kept for all"
    with pytest.raises(RoundError, match=r"the version 1 that it starts from is not in .*keep_versions"):
        replay(machine("c"), config, 2, tiny_model_dir)


def test_another_machine_goes_back_to_a_version_that_it_never_had(
    machine: Machine, tiny_model_dir: Path, judge: Judge
) -> None:
    config = trainer_config(judge, groups_per_round=1)
    run_two_rounds(machine("a"), config, tiny_model_dir)
    with loading_engine() as engine:
        told = config.model_copy(update={"engine_urls": [engine.url]})
        trainer = Trainer(told, machine("b"), model_path=tiny_model_dir)
        version, report = trainer.roll_back(1)
        trainer.close()
        assert (report.serving, engine.version) == ([engine.url], "3")
    fetch_newest(machine("a"))
    first, _, third = list_versions(machine("a").folder)
    assert (third.manifest.version, third.manifest.parent, third.manifest) == (3, 1, version.manifest)
    assert (third.path / "model.safetensors").read_bytes() == (first.path / "model.safetensors").read_bytes()
    verify(third.path)
