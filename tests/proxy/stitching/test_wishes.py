"""Wishes that the chat template fulfils: they are in the prompt, and no bridged turn mixes two of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support_proxy import running_proxy
from support_router import Router
from support_scripted_engine import ScriptedEngine
from support_way import Way, text_of

from weir.store.records.call_record import CallRecord, Stitch, unpack_ids

USER: Any = [{"role": "user", "content": "Hi"}]
MORE: Any = [*USER, {"role": "assistant", "content": "One."}, {"role": "user", "content": "More"}]
NO_THOUGHT = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
OFF: dict[str, tuple[str, dict[str, Any]]] = {
    "kwargs": ("/v1/chat/completions", {"messages": USER, "chat_template_kwargs": {"enable_thinking": False}}),
    "chat": ("/v1/chat/completions", {"messages": USER, "reasoning_effort": "none"}),
    "responses": ("/v1/responses", {"input": "Hi", "reasoning": {"effort": "none"}}),
    "messages": ("/v1/messages", {"messages": USER, "max_tokens": 9, "thinking": {"type": "disabled"}}),
}


def ask(way: Way, path: str, body: dict[str, Any]) -> None:
    answer = way.proxy.post(path, {"model": "weir"} | body)
    assert answer.status_code == 200, answer.text


def prompt(record: CallRecord) -> str:
    return text_of(unpack_ids(record.prompt_ids).tolist())


@pytest.mark.parametrize("dialect", OFF)
def test_thinking_is_switched_off_in_every_dialect(way: Way, dialect: str) -> None:
    way.say("One.")
    ask(way, *OFF[dialect])
    (record,) = way.proxy.records()
    assert prompt(record).endswith(NO_THOUGHT)
    assert record.ignored_fields == ()


def test_a_turn_with_the_same_wish_continues_the_exact_ids_and_another_is_rendered_anew(way: Way) -> None:
    way.say("One.")
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    for body in ({"messages": USER, **off}, {"messages": MORE, **off}, {"messages": MORE}):
        ask(way, "/s/a/v1/chat/completions", body)
    ask(way, "/s/fresh/v1/chat/completions", {"messages": MORE})
    first, same, other, fresh = way.proxy.records()
    assert (same.stitch, same.stitch_call) == (Stitch.BRIDGED, first.call_id)
    assert same.prompt_ids.startswith(first.prompt_ids + first.output_ids)
    assert prompt(same).endswith(NO_THOUGHT)
    assert other.stitch is not Stitch.BRIDGED
    assert not other.prompt_ids.startswith(first.prompt_ids)
    assert other.prompt_ids == fresh.prompt_ids
    assert NO_THOUGHT not in prompt(other)


def test_the_same_wish_is_continued_after_a_restart(
    scripted: tuple[ScriptedEngine, Router], tiny_model_dir: Path, tmp_path: Path
) -> None:
    """What the store keeps of a call is under its wish too."""
    engine, router = scripted
    engine.forget()
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    for messages in (USER, MORE):
        with running_proxy(tmp_path / "store", tiny_model_dir, router.url) as proxy:
            way = Way(engine=engine, router=router, proxy=proxy)
            way.say("One.")
            ask(way, "/s/a/v1/chat/completions", {"messages": messages, **off})
            records = way.proxy.records()
    first, second = sorted(records, key=lambda record: record.started_us)
    assert (second.stitch, second.stitch_call) == (Stitch.BRIDGED, first.call_id)


def test_a_continued_response_keeps_its_wish_exact(way: Way) -> None:
    way.say("One.")
    wish = {"reasoning": {"effort": "none", "summary": "auto"}}
    given = way.proxy.post("/v1/responses", {"model": "weir", "input": "Hi", **wish}).json()["id"]
    ask(way, "/v1/responses", {"input": "More", "previous_response_id": given, **wish})
    ask(way, "/v1/responses", {"input": "More", "previous_response_id": given})
    first, same, other = way.proxy.records()
    assert (same.stitch, same.stitch_call) == (Stitch.BRIDGED, first.call_id)
    assert same.ignored_fields == ("reasoning.summary",)
    assert other.stitch is not Stitch.BRIDGED and NO_THOUGHT not in prompt(other)


def test_an_effort_that_the_template_writes_is_in_the_prompt(
    scripted: tuple[ScriptedEngine, Router], tiny_model_dir: Path, tmp_path: Path
) -> None:
    """A template of the folder's own, by its text."""
    engine, router = scripted
    engine.forget()
    folder = tmp_path / "model"
    shutil.copytree(tiny_model_dir, folder)
    (folder / "chat_template.jinja").write_text(
        "{{ 'Reasoning: ' + (reasoning_effort or 'medium') + '\\n' }}{% for m in messages %}{{ '<|im_start|>' + m.role"
        " + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    with running_proxy(tmp_path / "store", folder, router.url) as proxy:
        way = Way(engine=engine, router=router, proxy=proxy)
        way.say("One.")
        ask(way, "/s/a/v1/chat/completions", {"messages": USER, "reasoning_effort": "low"})
        ask(way, "/s/a/v1/messages", {"messages": MORE, "max_tokens": 9, "output_config": {"effort": "low"}})
        ask(way, "/s/a/v1/responses", {"input": MORE, "reasoning": {"effort": "xhigh"}})
        state = proxy.control("GET", "/weir/state").json()
        first, second, third = proxy.records()
    assert prompt(first) == "Reasoning: low\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert (second.stitch, second.stitch_call) == (Stitch.BRIDGED, first.call_id)  # the same wish in another dialect
    assert third.ignored_fields == ("reasoning.effort",)
    assert prompt(third).startswith("Reasoning: medium\n")
    assert "reasoning_effort = low, medium, high" in json.dumps(state["rendering"])
