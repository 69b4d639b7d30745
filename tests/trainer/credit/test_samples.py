"""Which judged calls become samples: length filters, and ids that are the recorded ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support_rounds import Judge, add_sessions, make_record, model_logprobs, trainer_config

from weir.store.config import StoreConfig
from weir.store.records.call_record import FinishReason
from weir.trainer.trainer import Trainer

ANSWERS = {  # output tokens, how it ended, its reward
    "short": (4, FinishReason.STOP, 0.0),
    "as long as allowed": (6, FinishReason.STOP, 1.0),
    "too long": (7, FinishReason.STOP, 0.5),
    "cut off": (5, FinishReason.LENGTH, 0.3),
    "too long and cut off": (9, FinishReason.LENGTH, 0.1),
}


@pytest.mark.parametrize(
    ("settings", "skipped"),
    [
        ({}, {}),
        ({"max_sample_tokens": 10}, {"too_long": 2}),
        ({"train_truncated": False}, {"truncated": 2}),
        ({"max_sample_tokens": 10, "train_truncated": False}, {"too_long": 2, "truncated": 1}),
    ],
)
def test_answers_that_are_too_long_or_cut_off_are_judged_and_counted(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, settings: dict[str, Any], skipped: dict[str, int]
) -> None:
    random, prompt = np.random.default_rng(2), np.arange(20, 24)
    sessions = []
    for name, (length, finish, reward) in ANSWERS.items():
        output = random.integers(10, 200, length)
        told = model_logprobs(tiny_model_dir, prompt[None], output[None])[0]
        text = f"{name} reward={reward}"
        sessions.append([make_record(name, f"s-{name}", "g", prompt, output, told, finish=finish, text=text)])
    add_sessions(store, "g", sessions)
    trainer = Trainer(trainer_config(judge, **settings), store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert report.metrics["skipped"] == skipped
    assert report.metrics["samples"] == 5 - sum(skipped.values())
    assert report.metrics["reward_mean"] == pytest.approx(0.38)  # the group is compared whole
    trainer.close()
