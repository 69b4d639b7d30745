"""Rounds over imported trajectories: Weir's own give the weights of the store that they come from."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from support_rounds import Judge, add_group, make_task, model_logprobs, trainer_config
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.store.config import StoreConfig
from weir.store.transfer.import_file import import_jsonl
from weir.trainer.trainer import Trainer


def weights(store: StoreConfig) -> bytes:
    return (store.folder / "versions" / "00000001" / "model.safetensors").read_bytes()


def test_a_round_over_what_was_exported_and_imported_gives_the_same_weights(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, tmp_path: Path
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0, 1.0])
    add_group(store, tiny_model_dir, "g2", [0.1, 0.1, 0.3, 0.0])
    path, other = tmp_path / "theirs.jsonl", StoreConfig(root=tmp_path / "other")
    done = CliRunner().invoke(app, ["export", "--root", str(store.root), "--output", str(path)])
    assert done.exit_code == 0, done.output
    import_jsonl(other, path)
    for one in (store, other):
        report = Trainer(trainer_config(judge), one, model_path=tiny_model_dir).run_round()
        assert report is not None and report.metrics["samples"] == 8
    assert weights(store) == weights(other)


def test_a_round_trains_on_trajectories_that_only_have_ids_mask_and_logprobs(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, tmp_path: Path
) -> None:
    prompts = np.tile(np.arange(20, 26), (2, 1))
    outputs = np.array([[30, 31, 32], [40, 41, 42]])
    lines = [
        {
            "prompt_ids": prompts[i].tolist(),
            "completion_ids": outputs[i].tolist(),
            "completion_mask": [1, 1, 1],
            "completion_logprobs": logprobs.tolist(),
            "task": msgspec.to_builtins(make_task("theirs")),
            "sampling": {"temperature": 1.0},
            "messages": [
                {"role": "user", "content": "write it"},
                {"role": "assistant", "content": f"```\nreward={(0.0, 1.0)[i]}\n```"},
            ],
        }
        for i, logprobs in enumerate(model_logprobs(tiny_model_dir, prompts, outputs))
    ]
    path = tmp_path / "theirs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    import_jsonl(store, path, weight_version=0)
    report = Trainer(trainer_config(judge, groups_per_round=1), store, model_path=tiny_model_dir).run_round()
    assert report is not None
    assert (report.metrics["samples"], report.metrics["reward_mean"]) == (2, pytest.approx(0.5))
    assert report.metrics["fresh_logprob_diff_max"] < 1e-5
