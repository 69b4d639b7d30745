"""Ten turns by templates of every family's form: tools, thoughts, answers that are cut, and ids that no text gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support_families import TOOLS, call_message
from support_talk import THINKS, Talk, asked, result, said, ten_turns
from support_templates import FORMS, template_rendering

from weir.proxy.conversation.call_request import Answer, Delta
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.rendering.stream_parser import StreamedText
from weir.proxy.stitching.continuation import Prompt
from weir.store.records.call_record import Stitch, unpack_ids

Open = Callable[..., Rendering]
CALLS_READ = ("qwen2.5", "qwen3", "deepseek", "glm", "llama-3", "gpt-oss")
# What a template writes between an answer and a further question: the end of the turn, and the question's opening.
BETWEEN = {
    "smollm2": ("<|im_end|>", "\n<|im_start|>user\nGo on."),
    "qwen2.5": ("<|im_end|>", "\n<|im_start|>user\nGo on."),
    "qwen3": ("<|im_end|>", "\n<|im_start|>user\nGo on."),
    "llama-3": ("<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\nGo on."),
    "mistral": ("</s>", "[INST]Go on."),
    "gemma": ("<end_of_turn>", "\n<start_of_turn>user\nGo on."),
    "deepseek": ("<｜end▁of▁sentence｜>", "<｜User｜>Go on."),
    "glm": ("", "<|user|>\nGo on."),
    "gpt-oss": ("<|end|>", "<|start|>user<|message|>Go on."),
}


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    return lambda name, **settings: template_rendering(tmp_path / name, FORMS[name], **settings)


@pytest.mark.parametrize("sends_thoughts", [True, False])
@pytest.mark.parametrize("name", [name for name in FORMS if name not in ("smollm2", "mistral", "gemma")])
def test_ten_turns_with_tools_and_thoughts_are_exact(opened: Open, name: str, sends_thoughts: bool) -> None:
    rendering = opened(name)
    assert rendering.inexact_turns() == []
    talk = Talk(rendering, tools=True, system=True, sends_thoughts=sends_thoughts)
    prompts = list(ten_turns(talk, thinks=name in THINKS))
    assert talk.stitches == [Stitch.NEW_ROOT, *[Stitch.BRIDGED] * 9]
    assert all(f"Thought {number}." in talk.text() for number in range(10)) is (name in THINKS)
    assert [prompt.known.call_id if prompt.known else None for prompt in prompts[1:3]] == ["call_1", "call_2"]


def test_switched_off_thinking_is_exact_too(opened: Open) -> None:
    rendering = opened("qwen3", thinking=False)
    talk = Talk(rendering, tools=True, system=True)
    list(ten_turns(talk, thinks=False))
    assert talk.stitches == [Stitch.NEW_ROOT, *[Stitch.BRIDGED] * 9]
    assert talk.text().count("<think>\n\n</think>\n\n") == 10, "each answer began behind an empty thought"


@pytest.mark.parametrize("name", ["smollm2", "gemma"])
def test_ten_turns_of_a_family_without_tools_are_exact(opened: Open, name: str) -> None:
    rendering = opened(name)
    assert rendering.inexact_turns() == []
    talk = Talk(rendering, tools=False, system=name == "smollm2")
    for number in range(10):
        talk.turn(asked(f"Question {number}?"), said(f"Answer {number}."))
    assert talk.stitches == [Stitch.NEW_ROOT, *[Stitch.BRIDGED] * 9]


def test_a_template_that_moves_its_tools_says_so_and_stays_exact_elsewhere(opened: Open) -> None:
    rendering = opened("mistral")
    assert rendering.inexact_turns() == [
        "a further question after a system prompt",
        "a further question with tools",
        "a question after a result",
    ]
    plain = Talk(rendering, tools=False, system=False)
    for number in range(10):
        plain.turn(asked(f"Question {number}?"), said(f"Answer {number}."))
    assert plain.stitches == [Stitch.NEW_ROOT, *[Stitch.BRIDGED] * 9]
    talk = Talk(rendering, tools=True, system=False)
    list(ten_turns(talk, thinks=False))
    assert talk.stitches == [
        Stitch.NEW_ROOT,
        Stitch.TEMPLATE_STRIP,
        *[Stitch.BRIDGED] * 2,
        *[Stitch.TEMPLATE_STRIP] * 2,
        Stitch.BRIDGED,
        *[Stitch.TEMPLATE_STRIP] * 3,
    ], "results continue their calls; a further question moves the tools"


def test_thoughts_that_the_template_drops_are_dropped_where_the_settings_say_so(opened: Open) -> None:
    talk = Talk(opened("qwen3", keep_reasoning=False), tools=True, system=True)
    list(ten_turns(talk, thinks=True))
    strip = Stitch.TEMPLATE_STRIP
    bridged = Stitch.BRIDGED
    assert talk.stitches == [
        *(Stitch.NEW_ROOT, strip),
        *(bridged, bridged),  # between a question and its answer thoughts stay
        *(strip, strip, bridged),
        *(strip, strip, strip),
    ]
    assert "Thought 7." not in talk.text()


@pytest.mark.parametrize("name", FORMS)
def test_an_answer_that_was_cut_gets_the_end_of_its_turn(opened: Open, name: str) -> None:
    talk = Talk(opened(name), tools=False, system=False)
    talk.turn(asked("What is it?"), said("A long answer that is cut."), cut=4)
    assert added_text(talk).startswith("".join(BETWEEN[name]))


@pytest.mark.parametrize("name", [name for name in FORMS if len(FORMS[name].ends) > 1])
def test_a_turn_that_ended_by_another_token_is_not_ended_twice(opened: Open, name: str) -> None:
    talk = Talk(opened(name), tools=False, system=False)
    talk.turn(asked("What is it?"), said("Three."), end=FORMS[name].ends[1])
    assert added_text(talk).startswith(BETWEEN[name][1])


def added_text(talk: Talk) -> str:
    """What a further question adds to the exact ids."""
    before = talk.exact
    prompt = talk.turn(asked("Go on."), said("Well."))
    assert prompt.stitch is Stitch.BRIDGED
    return talk.rendering.tokenizer.decode(unpack_ids(prompt.ids.packed).tolist()[len(before) :])


@pytest.mark.parametrize("name", CALLS_READ)
def test_calls_are_read_as_the_template_writes_them(opened: Open, name: str) -> None:
    rendering = opened(name)
    talk = Talk(rendering, tools=True, system=True)
    prompt = talk.turn(asked("Add, please."), call_message({"a": 1, "note": "x  y"}))
    output = talk.exact[len(prompt.ids) :]
    answer: Answer = rendering.parse(output, prompt.ids.tail, TOOLS, True, "c")
    assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == [
        ("add", {"a": 1, "note": "x  y"})
    ]
    assert answer.content == ""
    assert rendering.facts()["tools"] == "kept"
    parts = streamed(rendering, prompt, output, answer)
    assert [call for part in parts for call in part.tool_calls] == list(answer.tool_calls)
    assert "".join(part.content for part in parts) == ""


def streamed(rendering: Rendering, prompt: Prompt, output: list[int], answer: Answer) -> list[Delta]:
    """What a stream of single tokens shows, and what is left at its end."""
    text = StreamedText(rendering.reading(prompt.ids.tail, TOOLS, True, "c"), ())
    return [*(text.feed([number]) for number in output), text.rest(answer)]


ANALYSIS = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
COMMENTARY = "<|channel|>commentary<|message|>I add.<|end|><|start|>assistant"
ONE, BOTH = [("add", {"a": 1})], [("add", {"a": 1}), ("b", {})]
# What models of these forms write, with the content and the calls in it.
WRITTEN: dict[str, tuple[tuple[str, str, list[tuple[str, Any]]], ...]] = {
    "llama-3": (
        ('{"name": "add", "parameters": {"a": 1}}<|eom_id|>', "", ONE),
        ('{"a": 1}', '{"a": 1}', []),
        ('{"name": "add", "parameters": {"a"', '{"name": "add", "parameters": {"a"', []),
        ('{"name": "add", "parameters": "none"}', '{"name": "add", "parameters": "none"}', []),
        ("It is three.", "It is three.", []),
    ),
    "mistral": (
        ('[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}, {"name": "b", "arguments": {}}]</s>', "", BOTH),
        ('Well.[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]b[CALL_ID]abcdefghi[ARGS]{}', "Well.", BOTH),
        ('[TOOL_CALLS][{"name": "add"', '[TOOL_CALLS][{"name": "add"', []),
        ('[TOOL_CALLS]["add"]', '[TOOL_CALLS]["add"]', []),
    ),
    "gpt-oss": (
        (ANALYSIS + ' to=functions.add<|channel|>commentary json<|message|>{"a": 1}<|call|>', "", ONE),
        (COMMENTARY + '<|channel|>commentary to=functions.add json<|message|>{"a": 1}<|call|>', "I add.", ONE),
        (ANALYSIS + "<|channel|>final<|message|>Three.<|return|>", "Three.", []),
    ),
}


@pytest.mark.parametrize(
    ("name", "written", "content", "calls"),
    [(name, *case) for name, cases in WRITTEN.items() for case in cases],
)
def test_calls_are_read_in_the_forms_that_the_models_write(
    opened: Open, name: str, written: str, content: str, calls: list[tuple[str, Any]]
) -> None:
    rendering = opened(name)
    output = rendering.tokenizer.encode(written)
    prompt = Talk(rendering, tools=True, system=False).turn(asked("Add."), said("Three."))
    answer = rendering.parse(output, prompt.ids.tail, TOOLS, True, "c")
    assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == calls
    assert answer.content == content
    assert answer.reasoning == ("Hm." if "analysis" in written else None)
    parts = streamed(rendering, prompt, output, answer)
    assert [call for part in parts for call in part.tool_calls] == list(answer.tool_calls)
    assert "".join(part.content for part in parts) == content
    as_text = rendering.parse(output, prompt.ids.tail, TOOLS, False, "c")
    assert as_text.tool_calls == () and all(called in as_text.content for called, _ in calls)


def test_ids_of_calls_take_the_length_that_a_template_wants(opened: Open) -> None:
    rendering = opened("mistral")
    call = call_message({"a": 1})
    text = rendering.tokenizer.decode(rendering.render([*asked("Add."), call, *result(call)], TOOLS))
    given = text.partition('"call_id": "')[2][:9]
    assert given.isalnum() and f'"id": "{given}"' in text, "the call and its result have the same one"
