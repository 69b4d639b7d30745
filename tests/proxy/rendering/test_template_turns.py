"""Exact ids go on by a model's own chat template, or not at all where it cannot show what follows an answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from weir.proxy.config import ProxyConfig
from weir.proxy.conversation.call_request import Message
from weir.proxy.rendering.opening import open_rendering
from weir.proxy.rendering.renderer import Rendering

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are Weir<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
COUNTING = "{% for m in messages %}{{ loop.index }}{{ m['content'] }}<|im_end|>{% endfor %}"
MOVING = "{{ messages[-1]['content'] }}{% for m in messages[:-1] %}{{ m['content'] }}<|im_end|>{% endfor %}"
REFUSING = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['tool_calls'][0].name }}{% endif %}{% endfor %}"
)
HISTORY: list[Message] = [{"role": "user", "content": "Grüße"}]
NEW: list[Message] = [{"role": "tool", "content": "42"}, {"role": "user", "content": "Und 世界?"}]


def rendering_of(tiny_model_dir: Path, folder: Path, template: str) -> Rendering:
    shutil.copytree(tiny_model_dir, folder)
    file = folder / "tokenizer_config.json"
    config: dict[str, Any] = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"chat_template": template}))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    return open_rendering(folder, "unknown", ProxyConfig(renderer="default"))


def test_the_next_turn_is_the_exact_one_and_what_the_template_writes_behind_it(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    rendering = rendering_of(tiny_model_dir, tmp_path / "m", CHATML)
    assert rendering.name == "default"
    prompt = rendering.render(HISTORY, None)
    answer = rendering.tokenizer.encode("Ja.") + rendering.stop_ids[:1]
    added = rendering.extension(prompt, answer, NEW, None)
    assert added is not None
    assert prompt + answer + added == rendering.render([*HISTORY, {"role": "assistant", "content": "Ja."}, *NEW], None)
    cut = rendering.extension(prompt, answer[:-1], NEW, None)
    assert cut == answer[-1:] + added, "an answer that was cut gets the end of its turn"


@pytest.mark.parametrize("template", [MOVING, REFUSING])
def test_a_template_that_cannot_show_it_gives_nothing_and_is_named(
    tiny_model_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, template: str
) -> None:
    rendering = rendering_of(tiny_model_dir, tmp_path / "m", template)
    assert rendering.extension([1], rendering.stop_ids[:1], NEW, None) is None
    assert rendering.inexact_turns() == ["a further question", "a further question after a system prompt"]
    assert "changes what stood before a further question" in caplog.text


def test_a_template_that_counts_is_exact_where_the_conversation_is_known(tiny_model_dir: Path, tmp_path: Path) -> None:
    rendering = rendering_of(tiny_model_dir, tmp_path / "m", COUNTING)
    talk: list[Message] = [*HISTORY, {"role": "assistant", "content": "Ja."}, *NEW]
    assert rendering.extension([1], rendering.stop_ids[:1], NEW, None) is None, "it depends on their number"
    added = rendering.extension([1], rendering.stop_ids[:1], NEW, None, talk)
    assert added == rendering.tokenizer.encode("342<|im_end|>4Und 世界?<|im_end|>")


def test_a_question_that_holds_the_end_of_a_turn_is_not_cut_at_it(tiny_model_dir: Path, tmp_path: Path) -> None:
    rendering = rendering_of(
        tiny_model_dir, tmp_path / "m", "{% for m in messages %}### {{ m['content'] }}\n{% endfor %}"
    )
    new: list[Message] = [{"role": "user", "content": "What is <|im_end|> for?"}]
    end = rendering.tokenizer.convert_tokens_to_ids("<|im_end|>")
    added = rendering.extension([1], [end], new, None)
    assert added == rendering.tokenizer.encode("\n### What is <|im_end|> for?\n")


def test_a_real_models_template_keeps_its_turns(smollm2_dir: Path) -> None:
    rendering = open_rendering(smollm2_dir, "smollm2", ProxyConfig())
    prompt = rendering.render(HISTORY, None)
    answer = rendering.tokenizer.encode("Schöne Grüße, 世界 🌍") + rendering.stop_ids[:1]
    added = rendering.extension(prompt, answer, NEW, None)
    assert added is not None
    answered: list[Message] = [*HISTORY, {"role": "assistant", "content": "Schöne Grüße, 世界 🌍"}, *NEW]
    assert prompt + answer + added == rendering.render(answered, None)
