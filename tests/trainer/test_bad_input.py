"""Invalid inputs of a round: each is named, nothing is lost, and nothing invalid is trained on."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from support_model import make_tiny_model
from support_rounds import Judge, add_group, add_sessions, make_record, trainer_config

from weir.proxy.rendering.tokenizer import ModelTokenizer
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.trainer.errors import JudgeUnavailable, TrainerUsageError, VersionError
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import list_versions, version_path


def finish_silent_group(store: StoreConfig, group_id: str, size: int) -> None:
    """Sessions that finished without one call."""
    catalog = Catalog.open(store)
    task = {"task_id": group_id, "prompt": "write it", "reference_src": "# silent"}
    for i in range(size):
        session_id = f"{group_id}-{i}"
        catalog.register_session(session_id, group_id, task=task, group_size=size, metadata={}, key_hash=None)
        catalog.finish_session(session_id, status="failed", info={})
    catalog.close()


def test_empty_groups_groups_of_one_and_groups_of_any_size_are_counted_and_leave_the_others_alone(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    finish_silent_group(store, "silent", 2)
    add_group(store, tiny_model_dir, "alone", [1.0])
    add_group(store, tiny_model_dir, "two", [0.0, 1.0])
    add_group(store, tiny_model_dir, "five", [0.0, 0.3, 1.0, 0.1, 1.0])
    trainer = Trainer(trainer_config(judge, groups_per_round=9), store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    metrics = report.metrics
    assert (metrics["groups"], metrics["groups_invalid"], metrics["samples"]) == (4, 1, 7)
    assert metrics["skipped"] == {"no_spread": 1}
    assert metrics["frac_groups_without_spread"] == pytest.approx(1 / 3)
    assert trainer.run_round() is None, "all four were consumed, once"
    trainer.close()


def test_a_judge_that_gives_no_number_leaves_the_round_open(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    says = judge.reply
    judge.reply = lambda body: (200, says(body)[1].replace(b'"raw_reward": 1.0', b'"raw_reward": NaN'))  # type: ignore[method-assign]
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    with pytest.raises(JudgeUnavailable, match="DecodeError"):
        trainer.run_round()
    judge.reply = says  # type: ignore[method-assign]
    report = trainer.run_round()
    assert report is not None
    assert (report.round, report.metrics["samples"]) == (1, 2)
    trainer.close()


def test_tokens_of_another_tokenizer_are_named_before_anything_is_claimed(
    tiny_model_dir: Path, tmp_path: Path, store: StoreConfig, judge: Judge
) -> None:
    record = make_record("c0", "s0", "g", np.arange(6), np.array([7, 511]), np.zeros(2, np.float32))
    add_sessions(store, "g", [[record]])
    smaller = make_tiny_model(tmp_path / "smaller", vocab_size=400, seed=0)
    trainer = Trainer(trainer_config(judge), store, model_path=smaller)
    with pytest.raises(TrainerUsageError, match=r"call c0 of group g has the token 511.*knows 400 tokens"):
        trainer.run_round()
    assert trainer.catalog.rounds() == []
    trainer.close()
    right = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    assert right.plan() is not None
    right.close()


def test_a_tokenizer_of_equal_size_that_is_another_one_is_named_before_anything_is_claimed(
    tiny_model_dir: Path, tmp_path: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0], tokenizer=ModelTokenizer(tiny_model_dir).vocabulary)
    other = shutil.copytree(tiny_model_dir, tmp_path / "other")
    file = other / "tokenizer.json"
    tokenizer = json.loads(file.read_bytes())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = sorted(vocabulary)[:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(tokenizer))
    trainer = Trainer(trainer_config(judge), store, model_path=other)
    with pytest.raises(
        TrainerUsageError, match=r"call call-g1-0 of group g1 was recorded with the vocabulary [0-9a-f]"
    ):
        trainer.run_round()
    assert trainer.catalog.rounds() == []
    trainer.close()
    compact(store)
    file.write_text(json.dumps(json.loads((tiny_model_dir / "tokenizer.json").read_bytes()), indent=1))
    right = Trainer(trainer_config(judge), store, model_path=other)  # the same one, written in another form
    report = right.run_round()
    assert report is not None and report.metrics["samples"] == 2
    right.close()


@contextmanager
def full_disk(bytes_left: int) -> Iterator[None]:
    """Limit the size of files: a write then fails as on a full disk, with another errno."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("algorithm", ["dapo", "ppo"])
def test_a_full_disk_is_named_and_the_same_process_goes_on_to_the_same_bits(
    algorithm: str, tiny_model_dir: Path, tmp_path: Path, judge: Judge
) -> None:
    whole, full = (StoreConfig(root=tmp_path / name) for name in ("whole", "full"))
    trainers = []
    for store in (whole, full):
        add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
        trainers.append(Trainer(trainer_config(judge, algorithm=algorithm), store, model_path=tiny_model_dir))
    with (
        pytest.raises(VersionError, match=r"version 1 cannot be written to .*00000001.*MB are free"),
        ExitStack() as disk,
    ):
        trainers[1].on_step = lambda step: disk.enter_context(full_disk(100_000)) if step == "trained" else None
        trainers[1].run_round()
    assert list((full.folder / "versions").iterdir()) == []
    trainers[1].on_step = lambda step: None
    reports = [trainer.run_round() for trainer in trainers]
    assert [report.round for report in reports if report is not None] == [1, 1]
    weights = [(version_path(store.folder, 1) / "model.safetensors").read_bytes() for store in (whole, full)]
    assert weights[0] == weights[1]
    for trainer in trainers:
        trainer.close()


def test_a_version_folder_that_is_half_there_is_named_and_nothing_is_claimed(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    assert trainer.run_round() is not None
    add_group(store, tiny_model_dir, "g2", [0.0, 1.0], version="1")
    weights = version_path(store.folder, 1) / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    with pytest.raises(VersionError, match=r"version 1 is incomplete: .*model\.safetensors has 100 bytes"):
        trainer.run_round()
    weights.unlink()
    with pytest.raises(VersionError, match=r"model\.safetensors is missing"):
        trainer.run_round()
    weights.write_bytes(whole)
    shutil.copytree(version_path(store.folder, 1), version_path(store.folder, 2), ignore=lambda *_: ["manifest.json"])
    with pytest.raises(VersionError, match=r"00000002 is not a version folder.*partial copies away"):
        trainer.run_round()
    shutil.rmtree(version_path(store.folder, 2))
    assert [row.round_id for row in trainer.catalog.rounds()] == [1]
    report = trainer.run_round()
    assert report is not None and report.version == 2
    assert len(list_versions(store.folder)) == 2
    trainer.close()
