"""Ten turns by the chat templates of public models, as trl's package holds them: exact, and calls are read.

WEIR_TEST_TRAINERS names an environment that has trl, as .ci/run makes it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from support_families import TOOLS, call_message
from support_talk import THINKS, Talk, asked, said, ten_turns
from support_templates import FORMS, template_rendering

from weir.proxy.rendering.renderer import Rendering
from weir.store.records.call_record import Stitch

FOLDERS = [
    *Path(os.environ.get("WEIR_TEST_TRAINERS", "/nowhere")).glob("lib/python3*/site-packages/trl/chat_templates")
]
pytestmark = pytest.mark.skipif(not FOLDERS, reason="WEIR_TEST_TRAINERS names no environment with trl")

# The template's name, and the form whose tokens it uses.
WITH_TOOLS = {
    "qwen2_5": "qwen2.5",
    "qwen3": "qwen3",
    "qwen3_instruct_2507": "qwen3",
    "llama3_1": "llama-3",
    "llama3_2": "llama-3",
    "glm4moe": "glm",
    "gptoss": "gpt-oss",
}
WITHOUT_TOOLS = {
    "llama3": "llama-3",
    "gemma": "gemma",
    "gemma3": "gemma",
    "deepseekv3": "deepseek",
    "deepseek_r1_distill": "deepseek",
}


def rendering_of(name: str, form: str, folder: Path) -> Rendering:
    template = (FOLDERS[0] / f"{name}.jinja").read_text()
    return template_rendering(folder / "model", dataclasses.replace(FORMS[form], template=template))


@pytest.mark.parametrize(("name", "form"), WITH_TOOLS.items())
def test_ten_turns_with_tools_and_thoughts_are_exact(tmp_path: Path, name: str, form: str) -> None:
    rendering = rendering_of(name, form, tmp_path)
    assert (rendering.inexact_turns(), rendering.facts()["tools"]) == ([], "kept")
    talk = Talk(rendering, tools=True, system=True)
    list(ten_turns(talk, thinks=form in THINKS))
    assert talk.stitches == [Stitch.NEW_ROOT, *[Stitch.BRIDGED] * 9]


@pytest.mark.parametrize(("name", "form"), WITH_TOOLS.items())
def test_calls_are_read_as_the_template_writes_them(tmp_path: Path, name: str, form: str) -> None:
    rendering = rendering_of(name, form, tmp_path)
    talk = Talk(rendering, tools=True, system=True)
    prompt = talk.turn(asked("Add, please."), call_message({"a": 1, "note": "x  y"}))
    answer = rendering.parse(talk.exact[len(prompt.ids) :], prompt.ids.tail, TOOLS, True, "c")
    calls = [(call.name, json.loads(call.arguments)) for call in answer.tool_calls]
    assert (calls, answer.content) == ([("add", {"a": 1, "note": "x  y"})], "")


@pytest.mark.parametrize(("name", "form"), WITHOUT_TOOLS.items())
def test_ten_turns_of_a_template_that_drops_tools_are_exact(tmp_path: Path, name: str, form: str) -> None:
    rendering = rendering_of(name, form, tmp_path)
    assert rendering.inexact_turns() == [] and not rendering.kept.whole_tools
    talk = Talk(rendering, tools=False, system=name != "gemma")
    for number in range(10):
        talk.turn(asked(f"Question {number}?"), said(f"Answer {number}."))
    assert talk.stitches == [Stitch.NEW_ROOT, *[Stitch.BRIDGED] * 9]
