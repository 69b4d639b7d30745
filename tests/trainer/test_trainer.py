"""Rounds over a real store: what is trained, what is left out, what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support_rounds import (
    Judge,
    add_group,
    add_sessions,
    make_record,
    make_task,
    model_logprobs,
    run_in_process,
    trainer_config,
)

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.reader import connect
from weir.store.records.call_record import CaptureLevel, FinishReason, pack_logprobs
from weir.trainer.errors import JudgeUnavailable, RoundBusy, TrainerUsageError
from weir.trainer.lease import round_lock
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import current_version, verify

LOST_REPLY = "```\nreward=0.3\n```"


def weights(root: Path, version: int) -> bytes:
    return (root / "versions" / f"{version:08d}" / "model.safetensors").read_bytes()


def test_a_round_judges_trains_and_commits(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0, 1.0])
    add_group(store, tiny_model_dir, "g2", [0.1, 0.1, 0.3, 0.0])
    console = Console(record=True, width=120, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir, console=console)
    started = time.monotonic()
    report = trainer.run_round()
    assert report is not None
    assert (report.round, report.version, report.published.serving) == (1, 1, [])
    metrics = report.metrics
    assert metrics["samples"] == 8
    assert metrics["reward_mean"] == pytest.approx(0.35)
    assert (metrics["correct"], metrics["compiled"]) == (0.25, 0.75)
    assert metrics["raw_reward_histogram"] == {"<0.1": 2, "<0.3": 2, "<0.5": 2, "<1": 0, ">=1": 2}
    assert metrics["faults"] == {"output_mismatch": 2, "syntax_error": 4}
    assert metrics["fresh_tokens"] == 64
    assert metrics["fresh_logprob_diff_max"] < 1e-5
    assert metrics["skipped"] == {}
    assert {"claim", "read", "judge", "hooks", "advantages", "samples", "train", "checkpoint", "publish"} <= set(
        metrics["seconds"]
    )
    assert sum(report.seconds.values()) <= time.monotonic() - started, "steps do not overlap"
    begins = {name: began for name, began, _ in metrics["timeline"]}
    order = ["look_back", "read", "claim", "judge", "samples", "train", "checkpoint", "commit", "publish"]
    assert [name for name in begins if name in order] == order == sorted(order, key=begins.__getitem__)
    judging = sum(seconds for name, _, seconds in metrics["timeline"] if name == "judge")
    assert judging == pytest.approx(metrics["seconds"]["judge"])
    manifest = verify(report.path)
    assert (manifest.groups, manifest.round, manifest.parent) == (["g1", "g2"], 1, 0)
    assert weights(store.root, 1) != (tiny_model_dir / "model.safetensors").read_bytes()
    catalog = Catalog.open(store)
    assert [(r.round_id, r.state, r.weight_version) for r in catalog.rounds()] == [(1, "committed", 1)]
    assert [v.version for v in catalog.versions()] == [1]
    with connect(store) as sql:
        assert sql.sql("SELECT raw_reward FROM evaluations WHERE call_id = 'call-g1-2'").fetchall() == [(1.0,)]
    assert trainer.run_round() is None
    assert "reward_mean" in console.export_text()
    trainer.close()


def test_each_round_starts_from_the_one_before(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    trainer = Trainer(trainer_config(judge, groups_per_round=1), store, model_path=tiny_model_dir)
    for number, group_id in enumerate(["g1", "g2", "g3"], start=1):
        add_group(store, tiny_model_dir, group_id, [0.0, 1.0])
        report = trainer.run_round()
        assert report is not None
        assert (report.round, report.version) == (number, number)
    log = [json.loads(line) for line in (store.root / "metrics.jsonl").read_text().splitlines()]
    assert [(entry["round"], entry["parent"], entry["staleness_max"]) for entry in log] == [
        (1, 0, 0),
        (2, 1, 1),
        (3, 2, 2),
    ]
    assert (store.root / "rounds" / "00000002" / "manifest.json").exists()
    trainer.close()


def test_rounds_in_one_process_and_in_many_give_the_same_bits(
    tiny_model_dir: Path, tmp_path: Path, judge: Judge
) -> None:
    config = trainer_config(judge, groups_per_round=1)
    stores = [StoreConfig(root=tmp_path / name) for name in ("one", "many")]
    for store in stores:
        for group_id in ("g1", "g2"):
            add_group(store, tiny_model_dir, group_id, [0.0, 1.0, 0.3])
    assert run_in_process(config, stores[0], tiny_model_dir, rounds=2) == 0
    assert [run_in_process(config, stores[1], tiny_model_dir) for _ in range(2)] == [0, 0]
    assert weights(stores[0].root, 2) == weights(stores[1].root, 2)


def test_a_round_without_signal_commits_and_keeps_the_weights(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.3, 0.3, 0.3])
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert (report.metrics["samples"], report.metrics["optimizer_steps"]) == (0, 0)
    assert report.metrics["skipped"] == {"no_spread": 3}
    assert report.metrics["frac_groups_without_spread"] == 1.0
    assert weights(store.root, 1) == (tiny_model_dir / "model.safetensors").read_bytes()
    assert trainer.run_round() is None
    trainer.close()


def test_an_outage_of_the_judge_is_no_reward_and_the_round_goes_on_later(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    judge.out_of_order = True
    with pytest.raises(JudgeUnavailable, match="the round stays open"):
        trainer.run_round()
    with connect(store) as sql:
        assert sql.sql("SELECT * FROM evaluations").fetchall() == []
    assert current_version(store.root) is None
    judge.out_of_order = False
    report = trainer.run_round()
    assert report is not None
    assert (report.round, report.metrics["reward_mean"]) == (1, 0.5)
    trainer.close()


def test_every_call_that_cannot_be_trained_on_is_counted_under_its_reason(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    prompt, output = np.arange(20, 26)[None], np.arange(40, 44)[None]
    logprobs = model_logprobs(tiny_model_dir, prompt, output)[0]
    sampled = {"temperature": 1.0, "top_p": 1.0}
    oddities = {
        "fine": {"text": "reward=1.0"},
        "fine too": {"text": "reward=0.0"},
        "aborted": {"finish": FinishReason.ABORT},
        "gone": {"finish": FinishReason.DISCONNECT},
        "text": {"level": CaptureLevel.TEXT, "text": "reward=0.1"},
        "stale": {"version": "1"},
        "future": {"version": "9"},
        "greedy": {"sampling": sampled | {"temperature": 0.0}},
        "truncated": {"sampling": sampled | {"top_p": 0.9}},
        "half known": {"sampling": sampled | {"top_k": 9, "json_schema": "{}"}},
        "cut off": {"finish": FinishReason.LENGTH, "text": "reward=0.3"},
        "infinite": {"logprobs": np.full(4, -np.inf, np.float32)},
    }
    add_group(store, tiny_model_dir, "first", [0.0, 1.0])
    skipping = {"truncated": "skip", "greedy": "skip"}
    config = trainer_config(judge, groups_per_round=1, max_staleness=1, off_policy=skipping)
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    for version, group_id in enumerate(("second", "third"), start=1):
        assert trainer.run_round() is not None
        add_group(store, tiny_model_dir, group_id, [0.0, 1.0], version=str(version))
    assert trainer.run_round() is not None  # the parent is version 3 now
    sessions = []
    for name, changes in oddities.items():
        changes = {"version": "3"} | changes
        told = changes.pop("logprobs", logprobs)
        sessions.append([make_record(name, f"s-{name}", "odd", prompt[0], output[0], told, **changes)])
    add_sessions(store, "odd", sessions)
    report = trainer.run_round()
    assert report is not None
    assert report.metrics["parent"] == 3
    assert report.metrics["skipped"] == {
        "future": 1,
        "greedy": 1,
        "level": 1,
        "not_finite": 1,
        "stale": 1,
        "truncated_sampling": 2,
        "unfinished": 2,
    }
    assert report.metrics["samples"] == 3
    assert report.metrics["corrected"] == {}
    assert report.metrics["judged_calls"] == 10  # an unfinished call has no answer to judge
    trainer.close()


def test_calls_that_agents_sampled_otherwise_are_trained_on_and_counted(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    prompt, output = np.arange(20, 26)[None], np.arange(40, 44)[None]
    logprobs = model_logprobs(tiny_model_dir, prompt, output)[0]
    ways = {
        "plain": {"top_p": 1.0, "top_k": -1},
        "greedy": {"temperature": 0.0},
        "truncated": {"top_p": 0.9},
        "penalised": {"frequency_penalty": 0.5},
        "grammar": {"json_schema": "{}"},
        "half known": {"top_k": 9, "json_schema": "{}"},
    }
    records = [
        make_record(name, f"s-{name}", "g", prompt[0], output[0], logprobs, text=f"reward={i % 2}.0", sampling=sampling)
        for i, (name, sampling) in enumerate(ways.items())
    ]
    told = pack_logprobs(logprobs + 0.25)  # the engine's logprobs among the kept tokens, which a grammar hides
    half = ways["half known"]
    records.append(
        make_record("told", "s-told", "g", prompt[0], output[0], logprobs, sampling=half, sampling_logprobs=told)
    )
    add_sessions(store, "g", [[record] for record in records])
    console = Console(record=True, width=120, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    trainer = Trainer(trainer_config(judge, max_staleness=1), store, model_path=tiny_model_dir, console=console)
    report = trainer.run_round()
    assert report is not None
    metrics = report.metrics
    assert (metrics["calls"], metrics["samples"], metrics["recorded_truncation"]) == (7, 6, 1)
    assert metrics["corrected"] == {"greedy": 1, "truncated_sampling": 4}
    assert metrics["skipped"] == {"unknown_support": 1}
    assert (metrics["fresh_tokens"], metrics["off_policy_tokens"]) == (4, 20)
    assert 0 < metrics["off_policy_weight_mean"] < 1
    told = console.export_text()
    for line in (
        "corrected: greedy",
        "corrected: truncated_sampling",
        "skipped: unknown_support",
        "off_policy_clipped",
    ):
        assert line in told
    with connect(store) as sql:
        name = "corrected.truncated_sampling"
        assert sql.sql(f"SELECT value FROM round_metrics WHERE name = '{name}'").fetchall() == [(4.0,)]
    trainer.close()


def test_a_temperature_other_than_one_is_found_again(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0], sampling={"temperature": 0.6, "top_p": 1.0, "top_k": -1})
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert report.metrics["fresh_logprob_diff_max"] < 1e-5
    trainer.close()


def test_held_out_tasks_and_groups_without_a_task_are_never_claimed(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "heldout", [0.0, 1.0], task=make_task("h", "heldout"))
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    assert trainer.run_round() is None
    assert trainer.plan() is None
    assert judge.candidates == []
    trainer.close()


def test_fewer_groups_than_asked_for_are_left_to_grow(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    trainer = Trainer(trainer_config(judge, min_groups=2), store, model_path=tiny_model_dir)
    assert trainer.run_round() is None
    add_group(store, tiny_model_dir, "g2", [0.0, 1.0])
    planned = trainer.plan()
    assert planned is not None
    assert planned.group_ids == ["g1", "g2"]
    assert trainer.catalog.open_round() is None  # planning claims nothing
    assert trainer.run_round() is not None
    trainer.close()


def test_equal_candidates_are_judged_once(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    prompt, outputs = np.tile(np.arange(20, 26), (3, 1)), np.arange(40, 52).reshape(3, 4)
    told = model_logprobs(tiny_model_dir, prompt, outputs)
    texts = ["reward=1.0", "reward=1.0", "reward=0.0"]
    sessions = [
        [make_record(f"c{i}", f"s{i}", "g", prompt[i], outputs[i], told[i], text=text)] for i, text in enumerate(texts)
    ]
    add_sessions(store, "g", sessions)
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert sorted(judge.candidates) == ["reward=0.0", "reward=1.0"]
    assert report.metrics["samples"] == 3
    trainer.close()


def test_of_two_rounds_at_once_one_leaves_with_a_clear_line(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    with round_lock(store.root, wait=False), pytest.raises(RoundBusy, match="another round is running"):
        trainer.run_round()
    assert trainer.run_round() is not None
    trainer.close()


def test_a_group_whose_agents_died_is_taken_when_it_timed_out(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    trainer = Trainer(trainer_config(judge, group_timeout_s=3600), store, model_path=tiny_model_dir)
    trainer.catalog.register_session("never-ends", "g2", task=None, group_size=3, metadata={}, key_hash=None)
    with trainer.catalog.writing().begin() as connection:
        connection.execute(t.groups.update().values(group_size=3))
    assert trainer.plan() is None
    with trainer.catalog.writing().begin() as connection:
        an_hour = 3601 * 10**6
        connection.execute(t.sessions.update().values(finished_us=t.sessions.c.finished_us - an_hour))
    report = trainer.run_round()
    assert report is not None
    assert (report.metrics["groups"], report.metrics["groups_timed_out"]) == (1, 1)
    trainer.close()


def test_a_group_of_old_weights_is_consumed_unjudged_and_takes_nobodys_place(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    config = trainer_config(judge, groups_per_round=1, max_staleness=0)
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    add_group(store, tiny_model_dir, "first", [0.0, 1.0])
    assert trainer.run_round() is not None
    asked = len(judge.candidates)
    add_group(store, tiny_model_dir, "old", [0.0, 1.0])  # of version 0, the parent is version 1 now
    assert trainer.run_round() is None  # nothing to train on: it waits for a round that consumes it
    add_group(store, tiny_model_dir, "new", [0.0, 1.0], version="1")
    report = trainer.run_round()
    assert report is not None
    assert (report.metrics["groups"], report.metrics["groups_expired"], report.metrics["samples"]) == (1, 1, 2)
    assert len(judge.candidates) == asked + 2
    assert trainer.catalog.rounds()[1].group_ids == ["new", "old"]
    assert verify(report.path).groups == ["new", "old"]
    trainer.close()


def test_the_settings_filter_groups_in_sql(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    for group_id in ("rows", "columns"):
        add_group(store, tiny_model_dir, group_id, [0.0, 1.0])
    config = trainer_config(judge, groups_where="task_id = 'columns' AND num_calls > 1")
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    planned = trainer.plan()
    assert planned is not None and planned.group_ids == ["columns"]
    trainer.config = config.model_copy(update={"groups_where": "colour = 'red'"})
    with pytest.raises(TrainerUsageError, match="no valid condition on the view groups"):
        trainer.plan()
    trainer.close()


def test_a_group_without_spread_can_be_kept_with_advantage_zero(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.3, 0.3, 0.3])
    add_group(store, tiny_model_dir, "g2", [0.0, 1.0])
    trainer = Trainer(trainer_config(judge, keep_without_spread=True), store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert (report.metrics["samples"], report.metrics["frac_groups_without_spread"]) == (5, 0.5)
    trainer.close()
