"""Rounds of the training slot: of the groups that it was told, it names those that no round takes as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support_rounds import Judge, add_group, trainer_config

from weir.scripts.live import slot_process as module
from weir.scripts.live.slot_process import Slot, Steps, open_trainer
from weir.store.catalog.catalog import Catalog, RewardRow
from weir.store.config import StoreConfig


def reward(store: StoreConfig, group: str) -> None:
    """Give both sessions of a group their rewards."""
    catalog = Catalog.open(store)
    for number in range(2):
        row = RewardRow(
            session_id=f"{group}-{number}", call_id=None, name="score", value=number, source="t", idempotency_key="s"
        )
        catalog.add_rewards([row])
    catalog.close()


def test_a_group_without_its_rewards_is_left_out_by_name_and_the_others_are_trained_on(
    store: StoreConfig, judge: Judge, tiny_model_dir: Path
) -> None:
    for group in ("a", "b", "without"):
        add_group(store, tiny_model_dir, group, [0.0, 1.0])
    reward(store, "a")
    config = trainer_config(judge, rewards={"score": {"stored": True}})
    trainer = open_trainer(config, store, tiny_model_dir, lambda _: None)
    slot = Slot(trainer, groups=2, least=2)
    assert slot.run(0, ["a", "without"]) == {"left_out": ["without"]}, "too few are left for a round"
    reward(store, "b")
    slot = Slot(trainer, groups=3, least=2)
    assert slot.run(0, ["a", "b", "without"], refilled=3) == {
        "version": 1,
        "groups": ["a", "b"],
        "left_out": ["without"],
    }
    assert [(row.metrics or {})["groups_refilled"] for row in trainer.catalog.rounds()] == [3]
    trainer.close()

    add_group(store, tiny_model_dir, "c", [0.0, 1.0], version=1)
    add_group(store, tiny_model_dir, "d", [0.0, 1.0], version=1)
    for group in ("c", "d"):
        reward(store, group)
    trainer = open_trainer(config, store, tiny_model_dir, lambda _: None)
    slot = Slot(trainer, groups=2, least=2)
    assert slot.load_ahead() == {} and trainer._backend._backend is None, "what was left comes first"
    assert slot.run(1, []) == {"left_out": []}
    assert slot.load_ahead() == {}
    loaded = trainer._backend._backend
    assert loaded is not None
    assert slot.run(1, ["c", "d"])["version"] == 2
    assert trainer._backend._backend is loaded, "the round did not load again"
    trainer.close()


def test_judging_ahead_is_reported_with_the_seconds_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, Any]] = []
    clock = iter([10.0, 11.0, 13.5])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    steps = Steps(reported.append)
    for step in ("judging_ahead", "trained", "judged_ahead"):
        steps(step)
    assert [(report["step"], report["seconds"]) for report in reported] == [
        ("judging_ahead", 0.0),
        ("trained", 0.0),
        ("judged_ahead", 3.5),
    ]
