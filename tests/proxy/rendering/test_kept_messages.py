"""What a prompt would drop is refused by its name, or written as text; a model always sees its tools."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from support_families import TOOLS, rendering_of
from support_proxy import running_proxy
from support_router import Router
from support_scripted_engine import ScriptedEngine
from support_templates import FORMS, SMOLLM2, template_rendering
from support_way import Way, text_of

from weir.proxy.rendering.kept_messages import Kept
from weir.store.records.call_record import Stitch, unpack_ids

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "note": "x"}}\n</tool_call>'


@pytest.fixture
def without_tools(
    scripted: tuple[ScriptedEngine, Router], tiny_model_dir: Path, tmp_path: Path
) -> Iterator[Callable[..., Way]]:
    """`without_tools(**proxy_settings)`: a proxy of a model whose template knows no tools."""
    engine, router = scripted
    engine.forget()
    folder = shutil.copytree(tiny_model_dir, tmp_path / "model")
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": SMOLLM2}))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    opened: list[Any] = []

    def start(**settings: Any) -> Way:
        opened.append(running_proxy(tmp_path / "store", folder, router.url, renderer="default", **settings))
        return Way(engine=engine, router=router, proxy=opened[-1].__enter__())

    yield start
    for context in opened:
        context.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("smollm2", Kept(tools=False, calls=False, results=True)),
        ("gemma", Kept(tools=False, calls=True, results=True)),  # it refuses calls and system prompts itself
        ("mistral", Kept()),
        ("gpt-oss", Kept()),
        ("deepseek", Kept()),
    ],
)
def test_what_a_template_keeps_is_found_by_rendering(tmp_path: Path, name: str, kept: Kept) -> None:
    assert template_rendering(tmp_path / name, FORMS[name]).kept == kept


def test_a_renderer_of_the_library_that_drops_tools_is_found_too() -> None:
    assert rendering_of("deepseek-v3").kept == Kept(tools=False)
    assert "refused: the template drops tools" in rendering_of("deepseek-v3").facts()["tools"]


def test_tools_that_the_template_drops_are_refused_by_name(without_tools: Callable[..., Way]) -> None:
    way = without_tools()
    client = way.proxy.client()
    question: Any = {"role": "user", "content": "Add."}
    call: Any = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    for options, param in (
        ({"messages": [question], "tools": TOOLS}, "tools"),
        (
            {"messages": [question, {"role": "assistant", "content": "", "tool_calls": [call]}, question]},
            "messages[1].tool_calls",
        ),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="weir", **options)  # type: ignore[call-overload]
        assert caught.value.param == param
        assert "proxy.tool_prompt" in caught.value.message
    assert way.proxy.records() == [] and way.engine.requests == []


@pytest.mark.parametrize("stream", [False, True])
def test_tools_as_text_are_called_answered_and_continued_exactly(
    without_tools: Callable[..., Way], stream: bool
) -> None:
    way = without_tools(tool_prompt="hermes")
    way.say(f"I add.\n{CALL}", f"{CALL}\n{CALL}", "It is 3.")
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Add 1."}]
    names = []
    for _ in range(3):
        answer = asked(way, messages, stream=stream)
        names.append([call["function"]["name"] for call in answer.get("tool_calls", ())])
        messages.append(answer)
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": "3"} for call in answer.get("tool_calls", ())
        ]
    assert names == [["add"], ["add", "add"], []]
    assert [(m.get("content") or "").strip() for m in messages if m["role"] == "assistant"][::2] == [
        "I add.",
        "It is 3.",
    ]
    _, second, third = way.proxy.records()
    assert [second.stitch, third.stitch] == [Stitch.BRIDGED] * 2
    text = text_of(unpack_ids(third.prompt_ids).tolist())
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n") and json.dumps(TOOLS[0]) in text
    result = "<tool_response>\n3\n</tool_response>"
    assert f"I add.\n{CALL}<|im_end|>\n<|im_start|>user\n{result}<|im_end|>\n<|im_start|>assistant\n{CALL}" in text
    assert text.endswith(f"<|im_start|>user\n{result}\n{result}<|im_end|>\n<|im_start|>assistant\n")


def test_a_call_as_text_that_cannot_be_read_stays_text(without_tools: Callable[..., Way]) -> None:
    way = without_tools(tool_prompt="hermes")
    way.say('Well.\n<tool_call>\n{"name": \n</tool_call>')
    answer = asked(way, [{"role": "user", "content": "Add."}], stream=True)
    assert answer["content"].startswith("Well.\n") and '{"name":' in answer["content"] and "tool_calls" not in answer


def asked(way: Way, messages: list[Any], *, stream: bool) -> Any:
    """One call with tools; the message as an agent would send it back."""
    client: Any = way.proxy.client()
    answer = client.chat.completions.create(model="weir", messages=messages, tools=TOOLS, stream=stream)
    if not stream:
        return answer.choices[0].message.model_dump(exclude_none=True)
    told: dict[str, Any] = {"role": "assistant", "content": ""}
    for chunk in answer:
        delta = chunk.choices[0].delta
        told["content"] += delta.content or ""
        for call in delta.tool_calls or ():
            told.setdefault("tool_calls", []).append(call.model_dump(exclude={"index"}))
    return told
