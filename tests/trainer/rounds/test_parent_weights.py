"""The weights that a round starts from: damaged or lost ones are named, and nothing is trained from others silently."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support_rounds import Judge, add_group, run_in_process, trainer_config

from weir.store.config import StoreConfig
from weir.trainer.errors import RoundError, VersionError
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import current_version, version_path, versions_folder, write_version


@pytest.fixture
def trainer(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> Iterator[Trainer]:
    """Fresh from its start, over a store with two groups, for which another process made version 1."""
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    config = trainer_config(judge, groups_per_round=1)
    assert run_in_process(config, store, tiny_model_dir) == 0
    add_group(store, tiny_model_dir, "g2", [0.0, 0.3, 1.0], version="1")
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    yield trainer
    trainer.close()


def damaged(file: Path) -> bytes:
    """Change 64 bytes in the middle of a file; returns its old content."""
    whole = file.read_bytes()
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes(byte ^ 0x55 for byte in whole[middle : middle + 64]) + whole[middle + 64 :])
    return whole


@pytest.mark.parametrize("name", ["trainer_state.pt", "model.safetensors"])
def test_a_damaged_file_of_the_parent_is_named_before_anything_is_claimed(
    name: str, trainer: Trainer, store: StoreConfig
) -> None:
    file = version_path(store.folder, 1) / name
    whole = damaged(file)
    with pytest.raises(VersionError, match=rf"00000001/{name} is not what the manifest says .*from a copy, or return"):
        trainer.run_round()
    assert [row.round_id for row in trainer.catalog.rounds()] == [1]
    file.write_bytes(whole)
    report = trainer.run_round()
    assert report is not None and (report.version, report.metrics["samples"]) == (2, 3)


def test_a_round_that_was_claimed_is_not_continued_from_a_damaged_parent(
    trainer: Trainer, tiny_model_dir: Path, store: StoreConfig
) -> None:
    run_in_process(trainer.config, store, tiny_model_dir, kill_at="judged")
    file = version_path(store.folder, 1) / "trainer_state.pt"
    whole = damaged(file)
    with pytest.raises(VersionError, match=r"trainer_state\.pt is not what the manifest says"):
        trainer.run_round()
    file.write_bytes(whole)
    report = trainer.run_round()
    assert report is not None and (report.round, report.metrics["samples"]) == (2, 3)


def test_after_a_damaged_version_one_goes_on_from_an_earlier_one(
    trainer: Trainer, tiny_model_dir: Path, store: StoreConfig
) -> None:
    assert trainer.run_round() is not None
    add_group(store, tiny_model_dir, "g3", [0.0, 1.0], version="2")
    damaged(version_path(store.folder, 2) / "trainer_state.pt")
    later = Trainer(trainer.config, store, model_path=tiny_model_dir)
    with pytest.raises(VersionError, match="00000002"):
        later.run_round()
    later.roll_back(1)
    report = later.run_round()
    assert report is not None and report.version == 4
    later.close()


def test_what_stands_in_memory_is_not_read_again(trainer: Trainer, tiny_model_dir: Path, store: StoreConfig) -> None:
    first = trainer.run_round()
    add_group(store, tiny_model_dir, "g3", [0.0, 1.0], version="2")
    second = trainer.run_round()
    assert first is not None and second is not None
    assert ("verify" in first.seconds, "verify" in second.seconds) == (True, False)


def test_where_all_versions_are_gone_no_round_begins_from_the_first_weights(
    trainer: Trainer, tmp_path: Path, store: StoreConfig
) -> None:
    kept = shutil.move(versions_folder(store.folder), tmp_path / "kept")
    for ask in (trainer.run_round, trainer.plan):
        with pytest.raises(
            RoundError, match=r"the catalog knows version 1, and .*versions holds no version.*new store"
        ):
            ask()
    assert [row.round_id for row in trainer.catalog.rounds()] == [1]
    shutil.move(kept, versions_folder(store.folder))
    (versions_folder(store.folder) / "CURRENT").unlink()
    report = trainer.run_round()
    assert report is not None and report.version == 2


def test_first_weights_with_a_version_are_no_version_that_was_lost(
    tiny_model_dir: Path, tmp_path: Path, store: StoreConfig, judge: Judge
) -> None:
    def copy(folder: Path) -> None:
        shutil.copytree(tiny_model_dir, folder, dirs_exist_ok=True)

    first = write_version(
        tmp_path / "first",
        copy,
        version=5,
        parent=None,
        round_id=None,
        config_hash="",
        seed=0,
        groups=[],
    )
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0], version="5")
    trainer = Trainer(trainer_config(judge), store, model_path=first.path)
    trainer.publish(first.path)  # no engine: the catalog knows of it
    assert [row.version for row in trainer.catalog.versions()] == [5]
    assert current_version(store.folder) is None
    report = trainer.run_round()
    assert report is not None and report.version == 6
    trainer.close()
