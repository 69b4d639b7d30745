"""A supervised loss mixed into rounds: its gradient, the rows of each step, and that crashes change nothing."""

from __future__ import annotations

import json
import signal
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from renderers import create_renderer
from renderers.configs import Qwen3RendererConfig
from rich.console import Console
from support_model import make_tokenizer
from support_rounds import Judge, add_group, run_in_process, trainer_config
from support_samples import branching_samples, make_rows

from weir.store.config import StoreConfig
from weir.trainer.errors import RoundError, TrainerUsageError
from weir.trainer.learner.learner import Learner
from weir.trainer.rounds.supervised_mix import MixedData, MixedRows
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import version_path

TEXTS = ["x = 1\ny = 2\n", "def f(x):\n    return x + 1\n", "a kernel stores what it loads", "three words here"]
CHATS = [[{"role": "user", "content": f"number {i}"}, {"role": "assistant", "content": f"x = {i}"}] for i in range(5)]


def renderer() -> Any:
    return create_renderer(make_tokenizer(512), Qwen3RendererConfig(enable_thinking=False))


def write_texts(folder: Path, name: str = "texts.jsonl") -> str:
    file = folder / name
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return str(file)


def gradient(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in learner.model.named_parameters() if p.grad is not None}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(9, 40), st.integers(0, 5))
def test_every_epoch_has_each_row_once_and_every_step_has_one_at_least(
    lengths: list[int], tokens: int, seed: int
) -> None:
    mixed = MixedRows(rows=make_rows(lengths), tokens_per_step=tokens, seed=seed)
    steps = [mixed.of_step(step) for step in range(3 * sum(lengths) // tokens + 1)]
    assert all(steps)
    drawn = [id(row) for rows in steps for row in rows]
    for epoch in range(3):
        of_epoch = drawn[epoch * len(lengths) : (epoch + 1) * len(lengths)]
        assert sorted(of_epoch) == sorted(map(id, mixed.rows))


def test_the_gradient_is_the_policys_and_coef_times_that_of_the_mean_cross_entropy(tiny_model_dir: Path) -> None:
    samples, rows = branching_samples(tiny_model_dir), make_rows([5, 3, 9])
    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu", sft_files=["x"], sft_coef=0.3))
    learner.score(samples)
    learner.accumulate(samples, fresh_version=0)
    expected = gradient(learner)
    loss = learner.accumulate_mixed(rows)
    found = gradient(learner)
    learner.stepper.clear()
    learner.model.network.set_attn_implementation("eager")  # from here on by hand, one row at a time
    total = torch.zeros(())
    for row in rows:
        ids = torch.from_numpy(row.ids.astype(np.int64))
        logprobs = torch.log_softmax(learner.model.network(ids[None]).logits[0, :-1], -1)
        total = total - logprobs[torch.arange(len(ids) - 1), ids[1:]][torch.from_numpy(row.targets[1:])].sum()
    (0.3 * total / 17).backward()  # 17 targets in all
    assert loss == pytest.approx(float(total.detach()) / 17, rel=1e-5)
    for name, by_hand in gradient(learner).items():
        assert torch.allclose(found[name], expected[name] + by_hand, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("token_budget", [1, 12, 10_000])
def test_micro_batches_do_not_change_the_gradient_of_mixed_rows(tiny_model_dir: Path, token_budget: int) -> None:
    rows = make_rows([5, 3, 9, 1, 12])
    found = []
    for budget in (token_budget, 10_000):
        settings: dict[str, Any] = {"token_budget": budget, "sft_files": ["x"], "sft_coef": 1.0}
        learner = Learner(tiny_model_dir, TrainerConfig(device="cpu", **settings))
        learner.accumulate_mixed(rows)
        found.append(torch.cat([grad.flatten() for grad in gradient(learner).values()]))
    assert float((found[0] - found[1]).norm()) <= 1e-5 * float(found[1].norm())


def test_settings_that_make_no_sense_are_refused() -> None:
    for settings in ({"sft_files": ["a.jsonl"]}, {"sft_coef": 0.1}):
        with pytest.raises(ValidationError, match="set both, or neither"):
            TrainerConfig(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="names a file twice"):
        TrainerConfig(sft_files=["a", "a"], sft_coef=0.1)
    with pytest.raises(ValidationError, match="finite"):
        TrainerConfig(sft_files=["a"], sft_coef=float("inf"))


def test_texts_are_cut_and_conversations_left_out_at_the_tokens_of_a_step(tiny_model_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "both.jsonl"
    long = [{"role": "user", "content": "word " * 60}, {"role": "assistant", "content": "x"}]
    lines = [{"text": TEXTS[1] * 9}, {"messages": CHATS[0]}, {"messages": long}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = TrainerConfig(sft_files=[str(file)], sft_coef=0.1, sft_tokens=40)
    mixed = MixedData(tiny_model_dir, renderer).rows(config)
    assert mixed is not None
    texts = [row for row in mixed.rows if row.targets.all()]
    tokenizer = make_tokenizer(512)
    assert tokenizer.decode(np.concatenate([row.ids for row in texts])) == TEXTS[1] * 9 + "<|im_end|>"
    assert [len(row.ids) for row in texts[:-1]] == [40] * (len(texts) - 1)
    assert len(mixed.rows) == len(texts) + 1
    assert mixed.num_too_long == 1
    with pytest.raises(TrainerUsageError, match="no row is left to mix in: 2 conversations"):
        file.write_text("".join(json.dumps(line) + "\n" for line in lines[1:]))
        MixedData(tiny_model_dir, renderer).rows(config.model_copy(update={"sft_tokens": 8}))


def mixing_config(judge: Judge, tmp_path: Path, **more: Any) -> TrainerConfig:
    """Rounds of one group and two steps, each with about two texts."""
    settings: dict[str, Any] = {"sft_files": [write_texts(tmp_path)], "sft_coef": 0.5, "sft_tokens": 32}
    return trainer_config(judge, groups_per_round=1, optimizer_steps=2, **(settings | more))


def add_groups(store: StoreConfig, model_dir: Path) -> None:
    for group_id in ("g1", "g2"):
        add_group(store, model_dir, group_id, [0.0, 0.3, 1.0])


def test_rounds_that_are_killed_mix_in_what_undisturbed_ones_do(
    tiny_model_dir: Path, tmp_path: Path, judge: Judge
) -> None:
    config = mixing_config(judge, tmp_path)
    whole, killed, plain = (StoreConfig(root=tmp_path / name) for name in ("whole", "killed", "plain"))
    for store in (whole, killed, plain):
        add_groups(store, tiny_model_dir)
    assert run_in_process(config, whole, tiny_model_dir, rounds=2) == 0
    for step in ("claimed", "trained", "files_written", "claimed", "current"):
        assert run_in_process(config, killed, tiny_model_dir, kill_at=step) == -signal.SIGKILL
    assert run_in_process(config, killed, tiny_model_dir, rounds=None) == 0
    without = trainer_config(judge, groups_per_round=1, optimizer_steps=2)
    assert run_in_process(without, plain, tiny_model_dir, rounds=2) == 0
    for number in (1, 2):
        weights = [
            (version_path(store.folder, number) / "model.safetensors").read_bytes() for store in (whole, killed, plain)
        ]
        assert weights[0] == weights[1] != weights[2]


def test_a_round_on_conversations_tells_their_loss_and_what_was_too_long_and_repeats_to_the_bit(
    tiny_model_dir: Path, tmp_path: Path, judge: Judge, store: StoreConfig
) -> None:
    chats = tmp_path / "chats.jsonl"
    long = [CHATS[0][0], {"role": "assistant", "content": "word " * 60}]
    chats.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in [*CHATS, long]))
    config = mixing_config(judge, tmp_path, sft_files=[str(chats), write_texts(tmp_path)])
    add_groups(store, tiny_model_dir)
    said = StringIO()
    trainer = Trainer(config, store, model_path=tiny_model_dir, renderer=renderer, console=Console(file=said))
    reports = [trainer.run_round(), trainer.run_round()]
    for report in reports:
        assert report is not None
        steps = report.metrics["steps"]
        assert len(steps) == 2
        assert report.metrics["sft_loss"] == pytest.approx(np.mean([step["sft_loss"] for step in steps]))
        assert report.metrics["sft_loss"] > 1.0  # nats a token, of a random model
        assert (report.metrics["sft_rows"], report.metrics["sft_too_long"]) == (len(CHATS) + len(TEXTS), 1)
    assert said.getvalue().count("sft_too_long") == 2
    for number in (1, 2):
        assert trainer.replay(number).differing == []
    trainer.close()


def test_data_that_is_no_use_stops_before_the_claim_and_data_that_changed_stops_the_round(
    tiny_model_dir: Path, tmp_path: Path, judge: Judge, store: StoreConfig
) -> None:
    config = mixing_config(judge, tmp_path)
    add_groups(store, tiny_model_dir)
    away = Trainer(
        config.model_copy(update={"sft_files": [str(tmp_path / "no.jsonl")]}), store, model_path=tiny_model_dir
    )
    with pytest.raises(TrainerUsageError, match=r"no\.jsonl of sft_files: No such file"):
        away.run_round()
    assert away.catalog.open_round() is None
    away.close()
    assert run_in_process(config, store, tiny_model_dir, kill_at="claimed") == -signal.SIGKILL
    (tmp_path / "texts.jsonl").write_text('{"text": "another text"}\n')
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    with pytest.raises(RoundError, match="not those that round 1 was claimed with"):
        trainer.run_round()
    write_texts(tmp_path)
    assert trainer.run_round() is not None
    trainer.close()
