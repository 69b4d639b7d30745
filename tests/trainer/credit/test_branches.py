"""The branches of a session's tree that a policy keeps, and how a round counts the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support_rounds import Judge, add_sessions, make_record, model_logprobs, trainer_config

from weir.store.config import StoreConfig
from weir.store.reader import StoredCall, load_calls
from weir.trainer.credit.branches import branches_of, on_kept_branches
from weir.trainer.trainer import Trainer

NUM_TOKENS = {"root": 4, "long": 12, "end": 4, "last": 4}


def tree(model_dir: Path) -> list[Any]:
    """root → long → end, and root → last, which starts after all others."""
    random = np.random.default_rng(5)
    outputs = {name: random.integers(10, 200, count) for name, count in NUM_TOKENS.items()}
    root = random.integers(10, 200, 6)
    after_root = np.concatenate([root, outputs["root"], [7, 8]])
    after_long = np.concatenate([after_root, outputs["long"], [9]])
    prompts = {"root": root, "long": after_root, "end": after_long, "last": np.concatenate([after_root, [11]])}
    records = []
    for i, name in enumerate(NUM_TOKENS):
        told = model_logprobs(model_dir, prompts[name][None], outputs[name][None])[0]
        text = f"{name} reward={i / 4}"
        times = {"started_us": 1_000_000 * (2 * i + 1), "finished_us": 1_000_000 * (2 * i + 2)}
        records.append(make_record(name, "s", "g", prompts[name], outputs[name], told, text=text, **times))
    return records


@pytest.fixture
def calls(store: StoreConfig, tiny_model_dir: Path) -> list[StoredCall]:
    add_sessions(store, "g", [tree(tiny_model_dir)])
    return load_calls(store, ["s"])["s"]


def test_branches_run_from_a_root_to_each_leaf(calls: list[StoredCall]) -> None:
    assert [[call.call_id for call in branch] for branch in branches_of(calls)] == [
        ["root", "long", "end"],
        ["root", "last"],
    ]


def test_a_policy_keeps_whole_branches(calls: list[StoredCall]) -> None:
    assert on_kept_branches(calls, "all") == set(NUM_TOKENS)
    assert on_kept_branches(calls, "last") == {"root", "last"}
    assert on_kept_branches(calls, "longest") == {"root", "long", "end"}


def test_calls_of_other_branches_are_neither_judged_nor_trained_on(
    calls: list[StoredCall], store: StoreConfig, tiny_model_dir: Path, judge: Judge
) -> None:
    trainer = Trainer(trainer_config(judge, branches="last"), store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert sorted(judge.candidates) == ["last reward=0.75", "root reward=0.0"]
    assert report.metrics["skipped"] == {"other_branch": 2}
    assert report.metrics["samples"] == 2
    trainer.close()
