"""Prejudging: the next round's answers are judged while one trains, stored, requested once, and change nothing else."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from support_reward_model import reward_model
from support_rounds import Judge, add_group, run_in_process, trainer_config

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.pins import pins
from weir.store.catalog.rewards import rewards_of
from weir.store.config import StoreConfig
from weir.store.reader import connect
from weir.trainer.rounds.prejudge import PIN
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import list_versions

GROUPS = {"g1": [0.0, 0.3, 1.0], "g2": [0.1, 1.0, 0.3], "g3": [1.0, 0.0, 0.1]}


def prepare(store: StoreConfig, model: Path) -> StoreConfig:
    for group_id, rewards in GROUPS.items():
        add_group(store, model, group_id, rewards)
    return store


def judged_groups(judge: Judge) -> list[str]:
    """The groups of the candidates, in the order in which the judge saw them."""
    return [candidate.split()[0] for candidate in judge.candidates]


def contents(store: StoreConfig) -> list[bytes]:
    return [(version.path / "model.safetensors").read_bytes() for version in list_versions(store.folder)]


class AheadOf:
    """A trainer whose rounds publish nothing before the answers of the next round were judged ahead."""

    def __init__(self, store: StoreConfig, judge: Judge, model: Path, **more: object) -> None:
        self.judged = threading.Event()
        config = trainer_config(judge, groups_per_round=1, **({"judge_ahead_groups": 1} | more))
        self.trainer = Trainer(config, store, model_path=model, on_step=self.on_step)

    def on_step(self, step: str) -> None:
        if step == "judged_ahead":
            self.judged.set()
        if step == "trained":
            assert self.judged.wait(60)
            self.judged.clear()


def test_what_is_judged_ahead_is_bounded_asked_about_once_and_changes_no_weight(
    tiny_model_dir: Path, store: StoreConfig, tmp_path: Path, judge: Judge
) -> None:
    ahead = AheadOf(prepare(store, tiny_model_dir), judge, tiny_model_dir)
    assert ahead.trainer.run_round() is not None
    assert judged_groups(judge) == ["g1"] * 3 + ["g2"] * 3, "g3 is beyond the bound"
    second = ahead.trainer.run_round()
    assert second is not None
    assert judged_groups(judge) == ["g1"] * 3 + ["g2"] * 3 + ["g3"] * 3
    assert ahead.trainer.run_round() is not None
    ahead.trainer.close()
    assert len(judge.candidates) == 9
    with connect(store) as sql:
        assert sql.sql("SELECT round_id, count(*) FROM evaluations GROUP BY 1 ORDER BY 1").fetchall() == [
            (1, 3),
            (2, 3),
            (3, 3),
        ]
    plain = prepare(StoreConfig(root=tmp_path / "plain"), tiny_model_dir)
    trainer = Trainer(trainer_config(judge, groups_per_round=1), plain, model_path=tiny_model_dir)
    reports = [trainer.run_round() for _ in GROUPS]
    trainer.close()
    assert contents(plain) == contents(store)
    assert reports[1] is not None
    timed = {"seconds", "timeline", "tokens_per_s", "groups_waiting"}
    same = [{k: v for k, v in r.metrics.items() if k not in timed} for r in (reports[1], second)]
    assert same[0] == same[1]


def test_groups_that_come_while_a_round_trains_are_judged_ahead_too(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", GROUPS["g1"])
    config = trainer_config(judge, judge_ahead_groups=4, loop_poll_s=0.01)
    seen = threading.Event()
    says = judge.reply

    def reply(body: bytes) -> tuple[int, bytes]:
        answer = says(body)
        if "g2" in judged_groups(judge):
            seen.set()
        return answer

    judge.reply = reply  # type: ignore[method-assign]

    def on_step(step: str) -> None:
        if step == "trained":
            add_group(store, tiny_model_dir, "g2", GROUPS["g2"])
            assert seen.wait(60)

    trainer = Trainer(config, store, model_path=tiny_model_dir, on_step=on_step)
    report = trainer.run_round()
    assert report is not None and report.metrics["groups"] == 1
    trainer.close()


def test_values_of_a_reward_model_are_kept_ahead_as_well(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    prepare(store, tiny_model_dir)
    with reward_model(lambda answer: float(len(answer))) as model:
        rewards = {"style": {"url": model.url, "batch_size": 2}}
        ahead = AheadOf(store, judge, tiny_model_dir, rewards=rewards, judge_ahead_groups=2)
        assert ahead.trainer.run_round() is not None
        ahead.trainer.close()
        assert sum(len(batch) for batch in model.batches) == 9
    catalog = Catalog.open(store)
    kept = rewards_of(catalog, [f"{group_id}-{i}" for group_id in GROUPS for i in range(3)], ["style"])
    catalog.close()
    assert len(kept) == 9


def test_a_trainer_that_was_killed_after_judging_ahead_asks_about_nothing_again(
    tiny_model_dir: Path, store: StoreConfig, tmp_path: Path, judge: Judge
) -> None:
    plain = prepare(StoreConfig(root=tmp_path / "plain"), tiny_model_dir)
    assert run_in_process(trainer_config(judge, groups_per_round=1), plain, tiny_model_dir, rounds=None) == 0
    judge.candidates.clear()
    prepare(store, tiny_model_dir)
    config = trainer_config(judge, groups_per_round=1, judge_ahead_groups=2)
    assert run_in_process(config, store, tiny_model_dir, kill_at="judged_ahead") == -signal.SIGKILL
    assert run_in_process(config, store, tiny_model_dir, rounds=None) == 0
    assert sorted(judged_groups(judge)) == [group_id for group_id in GROUPS for _ in range(3)]
    assert contents(store) == contents(plain)


def test_the_groups_of_a_pass_stay_pinned_until_their_verdicts_are_stored(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    prepare(store, tiny_model_dir)
    config = trainer_config(judge, groups_per_round=1, judge_ahead_groups=2)
    assert run_in_process(config, store, tiny_model_dir, kill_at="judging_ahead") == -signal.SIGKILL
    catalog = Catalog.open(store)
    assert [(pin.name, pin.num_groups) for pin in pins(catalog)] == [(PIN, 2)]
    assert run_in_process(config, store, tiny_model_dir, rounds=None) == 0
    assert pins(catalog) == []
    catalog.close()


def test_a_judge_that_is_away_while_a_round_trains_is_the_next_rounds_to_meet(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = AheadOf(prepare(store, tiny_model_dir), judge, tiny_model_dir)
    ready = ahead.trainer.on_step

    def on_step(step: str) -> None:
        if step == "judged":
            judge.out_of_order = True
        ready(step)

    ahead.trainer.on_step = on_step
    assert ahead.trainer.run_round() is not None
    assert "judging ahead of the next round stops: no verdict on task g2" in caplog.text
    judge.out_of_order = False
    ahead.trainer.on_step = lambda step: None
    report = ahead.trainer.run_round()
    assert report is not None and report.metrics["samples"] == 3
    ahead.trainer.close()


def test_an_end_does_not_wait_for_answers_that_are_not_needed_now(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    prepare(store, tiny_model_dir)
    asked, let_go = threading.Event(), threading.Event()
    says = judge.reply

    def reply(body: bytes) -> tuple[int, bytes]:
        if b"g2" in body:
            asked.set()
            let_go.wait()
        return says(body)

    judge.reply = reply  # type: ignore[method-assign]
    config = trainer_config(judge, groups_per_round=1, judge_ahead_groups=1)
    trainer = Trainer(
        config,
        store,
        model_path=tiny_model_dir,
        on_step=lambda step: (step == "trained" and asked.wait(60)) or None,  # type: ignore[arg-type, return-value]
    )
    assert trainer.run_round() is not None
    trainer.close()
    let_go.set()
