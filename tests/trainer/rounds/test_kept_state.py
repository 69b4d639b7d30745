"""Rounds that keep the optimiser's state only now and then, and starts from versions without it."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support_rounds import Judge, add_group, trainer_config

from weir.store.config import StoreConfig
from weir.trainer.errors import RoundError
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import version_path

ROUNDS = 4


def trainer(store: StoreConfig, judge: Judge, model: Path, console: Console | None = None, **more: Any) -> Trainer:
    return Trainer(
        trainer_config(judge, groups_per_round=1, max_staleness=ROUNDS, **more),
        store,
        model_path=model,
        console=console,
    )


def fill(store: StoreConfig, model: Path) -> None:
    for number in range(ROUNDS):
        add_group(store, model, f"g{number}", [0.0, 0.3, 1.0])


def weights(store: StoreConfig, version: int) -> bytes:
    return (version_path(store.folder, version) / "model.safetensors").read_bytes()


def states(store: StoreConfig) -> list[int]:
    found = (store.folder / "versions").glob("*/trainer_state.pt")
    return sorted(int(file.parent.name) for file in found)


@pytest.fixture
def whole(tiny_model_dir: Path, store: StoreConfig, judge: Judge, tmp_path: Path) -> bytes:
    """The last weights of rounds that keep every state, over a store of the same groups."""
    other = store.model_copy(update={"root": tmp_path / "other"})
    fill(other, tiny_model_dir)
    every = trainer(other, judge, tiny_model_dir)
    for _ in range(ROUNDS):
        assert every.run_round() is not None
    every.close()
    assert states(other) == [1, 2, 3, 4]
    return weights(other, ROUNDS)


def test_every_round_publishes_and_a_restart_trains_again_from_the_last_state(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, whole: bytes
) -> None:
    fill(store, tiny_model_dir)
    first = trainer(store, judge, tiny_model_dir, keep_state_every=2)
    for _ in range(3):
        assert first.run_round() is not None
    first.close()
    assert states(store) == [2]
    asked = len(judge.candidates)
    said = StringIO()
    second = trainer(store, judge, tiny_model_dir, Console(file=said), keep_state_every=2)
    report = second.run_round()
    assert second.replay(ROUNDS).differing == []
    second.close()
    assert report is not None
    assert report.version == ROUNDS
    assert "has no optimiser state: training rounds 3 again from" in said.getvalue().replace("\n", " ")
    assert states(store) == [2, 4]
    assert weights(store, ROUNDS) == whole
    assert len(judge.candidates) == asked + 3  # only the new round's answers were judged


def test_before_the_first_state_rounds_begin_again_from_the_first_weights(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, whole: bytes
) -> None:
    fill(store, tiny_model_dir)
    for _ in range(ROUNDS):  # a process for each round
        one = trainer(store, judge, tiny_model_dir, keep_state_every=4)
        assert one.run_round() is not None
        one.close()
    assert states(store) == [4]
    assert weights(store, ROUNDS) == whole


def test_a_fresh_state_is_said_aloud_and_changed_settings_are_refused(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    fill(store, tiny_model_dir)
    first = trainer(store, judge, tiny_model_dir, keep_state_every=4)
    assert first.run_round() is not None
    first.close()
    changed = trainer(store, judge, tiny_model_dir, keep_state_every=4, lr=1e-5)
    with pytest.raises(RoundError, match="round 1 cannot be repeated for its optimiser state: lr changed since"):
        changed.run_round()
    changed.close()
    said = StringIO()
    fresh = trainer(store, judge, tiny_model_dir, Console(file=said), keep_state_every=4, missing_state="fresh")
    assert fresh.run_round() is not None
    fresh.close()
    assert "has no optimiser state: the round begins with new moments" in said.getvalue().replace("\n", " ")


def test_settings_that_would_lose_the_state_are_refused(judge: Judge) -> None:
    with pytest.raises(ValueError, match="is above keep_versions = 4"):
        trainer_config(judge, keep_state_every=5)
