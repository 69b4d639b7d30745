"""The cold start on a real language model: its own chat template, byte-level BPE, many scripts, bfloat16 weights.

The tiny model of the other tests has a renderer of its family; this one has none, so that its turns go on by its
template, as the proxy's do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from weir.proxy.config import ProxyConfig
from weir.proxy.rendering.opening import open_rendering
from weir.scripts.cli.main import app
from weir.scripts.launch.resolve import chat_renderer
from weir.scripts.launch.settings import Settings
from weir.trainer.data.chat_rows import conversation_rows
from weir.trainer.data.dataset import Conversation, SupervisedRow

TALKS: tuple[tuple[str, ...], ...] = (
    ("Name a city in France.", "Lyon.", "And in Italy?", "Turin 🏛️."),
    ("Übersetze „Welt“ ins Japanische.", "世界", "Danke! Und „Himmel“?", "空 (そら)"),
    ("What is 17 + 25?", "17 + 25 = 42"),
    ("Say nothing but  two  spaces.", "a  b\n\n\tc", "Again.", "<|im_start|> is a token.", "Naïve?", "Ω≈ç√ 🚀"),
)
TRAINED = TALKS[:2]
PROJECTIONS = ["q_proj", "v_proj"]


def messages_of(talk: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(talk)]


def rows_of(model: Path, talks: Sequence[tuple[str, ...]]) -> list[list[SupervisedRow]]:
    renderer = chat_renderer(model, Settings())
    return [conversation_rows(Conversation(messages=messages_of(talk)), renderer) for talk in talks]


def data_file(folder: Path) -> Path:
    file = folder / "talks.jsonl"
    file.write_text("".join(json.dumps({"messages": messages_of(talk)}) + "\n" for talk in TRAINED))
    return file


def target_texts(row: SupervisedRow, tokenizer: Any) -> list[str]:
    """The text of each run of targets."""
    starts = np.flatnonzero(np.diff(row.targets.astype(int), prepend=0) == 1)
    ends = np.flatnonzero(np.diff(row.targets.astype(int), append=0) == -1) + 1
    return [tokenizer.decode(row.ids[start:end].tolist()) for start, end in zip(starts, ends, strict=True)]


def test_a_conversation_is_one_row_of_the_ids_that_the_proxy_and_the_engine_would_exchange(smollm2_dir: Path) -> None:
    rendering = open_rendering(smollm2_dir, "smollm2", ProxyConfig())
    tokenizer: Any = AutoTokenizer.from_pretrained(smollm2_dir)
    for talk, rows in zip(TALKS, rows_of(smollm2_dir, TALKS), strict=True):
        (row,) = rows
        messages = messages_of(talk)
        exact = rendering.render(messages[:1], None)
        for place in range(1, len(messages), 2):
            exact += [*rendering.tokenizer.encode(talk[place]), *rendering.stop_ids[:1]]
            if place + 1 < len(messages):
                added = rendering.extension(exact, [], [messages[place + 1]], None)
                assert added is not None
                exact += added
        assert row.ids.tolist() == exact
        assert target_texts(row, tokenizer) == [f"{text}<|im_end|>" for text in talk[1::2]]
        assert tokenizer.decode(exact) + "\n" == tokenizer.apply_chat_template(messages, tokenize=False)


@pytest.mark.parametrize("lora", [False, True], ids=["all", "lora"])
def test_a_cold_start_begins_at_the_models_own_loss_learns_and_is_loadable(
    smollm2_dir: Path, tmp_path: Path, lora: bool
) -> None:
    out = tmp_path / "version"
    flags = ["--data", str(data_file(tmp_path)), "--model", str(smollm2_dir), "--out", str(out), "--epochs", "3"]
    adapters = ["--lora-rank", "4", *(flag for name in PROJECTIONS for flag in ("--lora-target", name))]
    settings = tmp_path / "weir.toml"
    settings.write_text('[model]\nname = "smollm2"\n')
    arguments = ["sft", *flags, "--json", "--config", str(settings), *(adapters if lora else [])]
    ran = CliRunner().invoke(app, arguments, catch_exceptions=False)
    found = json.loads(ran.stdout.splitlines()[-1])
    rows = [row for rows in rows_of(smollm2_dir, TRAINED) for row in rows]
    assert (found["rows"], found["optimizer_steps"]) == (len(TRAINED), 3)
    assert found["first_loss"] == pytest.approx(plain_loss(smollm2_dir, rows), rel=1e-3)
    assert found["last_loss"] < found["first_loss"] - 0.1
    assert plain_loss(out, rows) < found["last_loss"], "what was written has taken the last step"
    if lora:
        first, last = (load_file(folder / "model.safetensors") for folder in (smollm2_dir, out))
        changed = {name for name, weight in last.items() if not torch.equal(weight.float(), first[name].float())}
        assert {name.split(".")[-2] for name in changed} == set(PROJECTIONS)


def plain_loss(model: Path, rows: list[SupervisedRow]) -> float:
    """Nats a target, by transformers alone, one row at a time."""
    network: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    total, count = 0.0, 0
    for row in rows:
        ids = torch.from_numpy(row.ids.astype(np.int64))
        with torch.no_grad():
            logprobs = torch.log_softmax(network(ids[None]).logits[0], -1)
        for place in np.flatnonzero(row.targets):
            total -= float(logprobs[place - 1, ids[place]])
            count += 1
    return total / count
