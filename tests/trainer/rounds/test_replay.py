"""Replays of a past round: bit for bit, or with the names of the files that differ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support_rounds import Judge, add_group, trainer_config

from weir.store.config import StoreConfig
from weir.trainer.errors import RoundError, TrainerUsageError
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import list_versions, version_path


@pytest.fixture
def trainer(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> Trainer:
    """A trainer after two rounds."""
    running = Trainer(trainer_config(judge, groups_per_round=1), store, model_path=tiny_model_dir)
    for version, group_id in enumerate(("g1", "g2")):
        add_group(store, tiny_model_dir, group_id, [0.0, 0.3, 1.0], version=str(version))
        assert running.run_round() is not None
    return running


def test_a_round_repeats_bit_for_bit_with_the_settings_and_verdicts_that_it_had(trainer: Trainer, judge: Judge) -> None:
    judge.out_of_order = True  # nobody is asked again
    trainer.config = trainer.config.model_copy(update={"lr": 1.0, "num_correct_trials": 2})
    before = [version.manifest for version in list_versions(trainer.store.folder)]
    for number in (1, 2):
        found = trainer.replay(number)
        assert (found.round, found.version, found.differing) == (number, number, [])
        assert found.num_files >= 3
    assert [version.manifest for version in list_versions(trainer.store.folder)] == before
    assert len(trainer.catalog.rounds()) == 2
    trainer.close()


def test_a_round_whose_version_is_gone_is_compared_with_what_was_kept_of_it(trainer: Trainer) -> None:
    shutil.rmtree(version_path(trainer.store.folder, 2))
    assert trainer.replay(2).differing == []
    trainer.close()


def test_files_that_differ_are_named(trainer: Trainer) -> None:
    folder = version_path(trainer.store.folder, 1)
    manifest = (folder / "manifest.json").read_text()
    sha256 = list_versions(trainer.store.folder)[0].manifest.files["model.safetensors"].sha256
    (folder / "manifest.json").write_text(manifest.replace(sha256, "0" * 64))
    assert trainer.replay(1).differing == ["model.safetensors"]
    trainer.close()


def test_what_cannot_be_repeated_is_named(trainer: Trainer) -> None:
    with pytest.raises(TrainerUsageError, match="round 9: it was never committed; committed rounds: 1 to 2"):
        trainer.replay(9)
    shutil.rmtree(version_path(trainer.store.folder, 1))
    with pytest.raises(RoundError, match=r"the version 1 that it starts from is not in (?!.* nor in ).*keep_versions"):
        trainer.replay(2)
    trainer.close()
