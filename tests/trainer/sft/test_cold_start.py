"""The cold start: targets, falling losses, resume."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from support_model import make_tiny_model
from support_sft import TOKENIZER, renderer, sft_in_process

from weir.trainer.data.chat_rows import conversation_rows
from weir.trainer.data.dataset import Conversation, SupervisedRow, read_data
from weir.trainer.errors import TrainerUsageError, VersionError
from weir.trainer.settings.config import SftConfig
from weir.trainer.sft.cold_start import run_sft
from weir.trainer.versions.version_folder import verify


def conversation(*turns: tuple[str, str]) -> Conversation:
    messages = [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    return Conversation(messages=messages)


def target_texts(row: SupervisedRow) -> list[str]:
    """The texts of the runs of targets."""
    texts: list[list[int]] = []
    for i, (token, target) in enumerate(zip(row.ids.tolist(), row.targets.tolist(), strict=True)):
        if target and not row.targets[i - 1]:
            texts.append([])
        if target:
            texts[-1].append(token)
    return [TOKENIZER.decode(ids) for ids in texts]


def test_targets_are_exactly_the_assistants_tokens_and_its_end_of_turn() -> None:
    (row,) = conversation_rows(conversation(("say x", "x = 1"), ("again", "x = 2")), renderer(enable_thinking=False))
    assert target_texts(row) == ["x = 1<|im_end|>", "x = 2<|im_end|>"]
    text = TOKENIZER.decode(row.ids.tolist())
    assert text.startswith(
        "<|im_start|>user\nsay x<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nx = 1<|im_end|>"
    )
    assert text.endswith("x = 2<|im_end|>")


def test_an_assistants_message_of_weight_0_is_no_target(tmp_path: Path) -> None:
    chat = conversation(("say x", "x = 1"), ("again", "x = 2"))
    chat.messages[1]["weight"] = 0
    (row,) = conversation_rows(chat, renderer(enable_thinking=False))
    assert target_texts(row) == ["x = 2<|im_end|>"]
    chat.messages[3]["weight"] = 0
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps({"messages": chat.messages}))
    with pytest.raises(TrainerUsageError, match="none with a weight above 0"):
        read_data(file)


def test_the_ids_before_a_target_are_the_prompt_that_the_proxy_sends() -> None:
    chat, rendered = conversation(("say x", "x = 1"), ("again", "x = 2")), renderer()
    (row,) = conversation_rows(chat, rendered)
    first = rendered.render_ids(chat.messages[:1], add_generation_prompt=True)
    assert row.ids[: len(first)].tolist() == first
    assert not row.targets[: len(first)].any()
    end = len(first) + int(np.argmin(row.targets[len(first) :]))
    answer = row.ids[len(first) : end].tolist()
    bridged = rendered.bridge_to_next_turn(first, answer, chat.messages[2:3])
    assert row.ids[: len(bridged.token_ids)].tolist() == bridged.token_ids
    assert not row.targets[end : len(bridged.token_ids)].any()


def test_a_renderer_that_cannot_bridge_and_rewrites_the_history_gives_a_row_for_each_turn() -> None:
    rendered = renderer()
    rendered.bridge_to_next_turn = lambda *_args, **_options: None
    rows = conversation_rows(conversation(("say x", "x = 1"), ("again", "x = 2")), rendered)
    thought = "<think>\n\n</think>\n\n"
    assert [target_texts(row) for row in rows] == [[f"{thought}x = 1<|im_end|>"], [f"{thought}x = 2<|im_end|>"]]


def test_a_full_rendering_that_begins_with_the_exact_ids_extends_the_row() -> None:
    chat, rendered = conversation(("say x", "x = 1"), ("again", "x = 2")), renderer(enable_thinking=False)
    (bridged,) = conversation_rows(chat, rendered)
    rendered.bridge_to_next_turn = lambda *_args, **_options: None
    (row,) = conversation_rows(chat, rendered)
    assert row.ids.tolist() == bridged.ids.tolist()
    assert row.targets.tolist() == bridged.targets.tolist()


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n{"text": 1}\n'
    )
    with pytest.raises(TrainerUsageError, match="line 2"):
        read_data(file)
    file.write_text('{"text": "a", "messages": []}\n')
    with pytest.raises(TrainerUsageError, match="line 1: there are both messages and text"):
        read_data(file)
    file.write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    with pytest.raises(TrainerUsageError, match="no assistant message"):
        read_data(file)


def write_data(folder: Path) -> Path:
    file = folder / "data.jsonl"
    lines = [{"messages": conversation((f"number {i % 4}", f"x = {i % 4}")).messages} for i in range(24)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_a_cold_start_learns_and_repeats_to_the_bit(tiny_model_dir: Path, tmp_path: Path) -> None:
    config = SftConfig(epochs=8, lr=5e-3, warmup_steps=2, device="cpu")
    data = write_data(tmp_path)
    reports = [
        run_sft(config, data=data, model=tiny_model_dir, out=tmp_path / name, renderer=renderer())
        for name in ("a", "b")
    ]
    assert reports[0].losses[-1] < 0.2 * reports[0].losses[0]
    assert (reports[0].num_rows, reports[0].num_too_long, len(reports[0].losses)) == (24, 0, 24)
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()
    assert verify(tmp_path / "a").version == 0
    assert (tmp_path / "a" / "tokenizer.json").exists()
    with pytest.raises(VersionError, match="never overwritten"):
        run_sft(config, data=data, model=tiny_model_dir, out=tmp_path / "a", renderer=renderer())


def test_a_cold_start_learns_plain_text_too(tiny_model_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps({"text": "x = 1\ny = 2\n" * 20}) + "\n")
    config = SftConfig(epochs=20, lr=5e-3, warmup_steps=2, max_tokens=64, device="cpu")
    report = run_sft(config, data=file, model=tiny_model_dir, out=tmp_path / "out", renderer=renderer())
    assert report.num_rows > 1
    assert report.losses[-1] < 0.2 * report.losses[0]


def test_micro_batches_do_not_change_what_a_cold_start_learns(tiny_model_dir: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path)
    losses = [
        run_sft(
            SftConfig(epochs=1, token_budget=budget, device="cpu"),
            data=data,
            model=tiny_model_dir,
            out=tmp_path / str(budget),
            renderer=renderer(),
        ).losses
        for budget in (1, 10_000)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_rows_that_are_too_long_are_left_out_and_counted(tiny_model_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    texts = ["short", "long " * 200]
    file.write_text("".join(json.dumps({"messages": conversation(("a", t)).messages}) + "\n" for t in texts))
    config = SftConfig(epochs=1, max_tokens=64, device="cpu")
    report = run_sft(config, data=file, model=tiny_model_dir, out=tmp_path / "out", renderer=renderer())
    assert (report.num_rows, report.num_too_long) == (1, 1)


class Killed(Exception):
    """Raised by a test to end a run."""


def test_a_killed_run_goes_on_to_the_same_bits(tiny_model_dir: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path)
    config = SftConfig(epochs=3, warmup_steps=2, device="cpu", checkpoint_steps=2, validation_share=0.2)

    def kill_after_five(step: int) -> None:
        if step == 5:
            raise Killed

    def run(out: Path, on_step: Any = lambda _: None, **changed: Any) -> Any:
        changed_config = config.model_copy(update=changed)
        return run_sft(changed_config, data=data, model=tiny_model_dir, out=out, renderer=renderer(), on_step=on_step)

    whole = run(tmp_path / "whole")
    with pytest.raises(Killed):
        run(tmp_path / "killed", kill_after_five)
    assert not (tmp_path / "killed").exists()
    with pytest.raises(TrainerUsageError, match="other settings, data or first weights"):
        run(tmp_path / "killed", lr=1e-5)
    taken: list[int] = []
    resumed = run(tmp_path / "killed", taken.append)
    assert taken[0] == 5  # four were kept
    assert (resumed.losses, resumed.validation_losses) == (whole.losses, whole.validation_losses)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]
    assert not list(tmp_path.glob(".killed*"))


def test_a_cold_start_that_is_killed_anywhere_again_and_again_ends_at_the_same_bits(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model", dropout=0.1)
    data, count, random = write_data(tmp_path), tmp_path / "calls", Random(3)
    for name in ("warm", "whole"):  # the first process imports what later ones find in memory
        assert sft_in_process(data, model, tmp_path / name, kill_at=None, count_into=count) == 0
    calls, kills, killed = int(count.read_text()), 0, tmp_path / "killed"
    while kills < 12 or not killed.exists():
        if killed.exists():
            shutil.rmtree(killed)
        code = sft_in_process(data, model, killed, kill_at=random.randint(1, calls), count_into=count)
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]
    assert verify(killed).version == 0
    assert sft_in_process(data, model, killed, kill_at=None, count_into=count) == 1, "it is there"
    assert not list(tmp_path.glob(".killed*")), "what was written aside, or to go on from, is gone"


def test_what_was_kept_to_go_on_from_goes_when_the_version_is_there_or_is_named_when_it_is_damaged(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    data, out = write_data(tmp_path), tmp_path / "out"
    config = SftConfig(epochs=1, device="cpu", checkpoint_steps=1)

    def run(on_step: Any = lambda _: None) -> None:
        run_sft(config, data=data, model=tiny_model_dir, out=out, renderer=renderer(), on_step=on_step)

    def kill(step: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        run(kill)
    kept = shutil.copytree(tmp_path / ".out.progress", tmp_path / "kept")
    for name in ("progress.json", "step-1/trainer_state.pt"):
        whole = (kept / name).read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], b"nothing of torch"):
            (tmp_path / ".out.progress" / name).write_bytes(damaged)
            with pytest.raises(TrainerUsageError, match=r"\.out\.progress cannot be read .*; delete it to start anew"):
                run()
        (tmp_path / ".out.progress" / name).write_bytes(whole)
    run()
    shutil.copytree(kept, tmp_path / ".out.progress")  # as if killed before it was deleted
    (tmp_path / ".out.12345.new").mkdir()
    with pytest.raises(VersionError, match="never overwritten"):
        run()
    assert not list(tmp_path.glob(".out*"))


def test_conversations_held_back_are_scored_after_each_epoch_and_never_trained_on(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    config = SftConfig(epochs=4, lr=5e-3, warmup_steps=2, device="cpu", validation_share=0.25)
    report = run_sft(config, data=write_data(tmp_path), model=tiny_model_dir, out=tmp_path / "out", renderer=renderer())
    assert report.num_rows + report.num_held_back == 24
    assert 0 < report.num_held_back < 12
    assert len(report.validation_losses) == 4
    assert report.validation_losses[-1] < report.validation_losses[0]  # the same four sentences are in both parts
