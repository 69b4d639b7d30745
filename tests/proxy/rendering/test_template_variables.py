"""Which wishes a model's prompts fulfil: found by rendering, for templates of a folder and renderers of the library."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support_families import make_family
from support_templates import FORMS, template_rendering

from weir.proxy.config import ProxyConfig
from weir.proxy.conversation.call_request import CallRequest, Wish
from weir.proxy.rendering.opening import open_rendering
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.rendering.template_variables import template_names

USER: Any = [{"role": "user", "content": "Hi"}]
NO_EFFORT = Wish("e", (("reasoning_effort", "none"), ("enable_thinking", False), ("thinking", False)))
# Takes two words, and any other for the first of them.
BRANCHES = (
    "{% if verbosity == 'high' %}{{ 'Say much.' }}{% else %}{{ 'Say little.' }}{% endif %}" + FORMS["qwen2.5"].template
)


def effort(value: str) -> Wish:
    return Wish("e", (("reasoning_effort", value),))


def named(name: str, value: Any) -> Wish:
    return Wish(f"k.{name}", ((name, value),), names_variable=True)


def fulfilled(rendering: Rendering, *wishes: Wish) -> tuple[dict[str, Any], tuple[str, ...]]:
    request = rendering.variables.fulfilled(CallRequest(model="m", messages=USER, wishes=wishes))
    return request.template_variables, request.ignored_fields


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("smollm2", {}),
        ("qwen2.5", {}),
        ("qwen3", {"enable_thinking": (True, False)}),
        ("deepseek", {}),
        ("gpt-oss", {"reasoning_effort": ("low", "medium", "high")}),
    ],
)
def test_what_changes_a_templates_text_is_known(tmp_path: Path, form: str, values: dict[str, Any]) -> None:
    rendering = template_rendering(tmp_path / form, FORMS[form])
    assert rendering.variables.values == values
    assert all(name in rendering.facts()["wishes"] for name in values)


def test_a_word_that_a_template_takes_for_another_is_not_known(tmp_path: Path) -> None:
    rendering = template_rendering(tmp_path / "m", replace(FORMS["qwen2.5"], template=BRANCHES))
    assert rendering.variables.values == {"verbosity": ("high",)}
    assert fulfilled(rendering, Wish("v", (("verbosity", "low"),))) == ({}, ("v",))


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("qwen3", {"enable_thinking": (True, False)}),
        ("qwen3.8", {"enable_thinking": (True, False), "reasoning_effort": ("low", "medium", "xhigh")}),
        ("kimi-k2.5", {"thinking": (True, False)}),
        ("deepseek-v3", {}),
    ],
)
def test_what_a_renderer_of_the_library_takes_is_known(tmp_path: Path, family: str, values: dict[str, Any]) -> None:
    make_family(tmp_path, family)
    assert open_rendering(tmp_path, "m", ProxyConfig(renderer=family)).variables.values == values


def test_a_switch_of_the_library_that_the_models_template_lacks_is_not_known(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    """Qwen3's Instruct models have the renderer of Qwen3, and no thinking."""
    folder = tmp_path / "instruct"
    shutil.copytree(tiny_model_dir, folder)
    assert open_rendering(folder, "m", ProxyConfig()).variables.values == {"enable_thinking": (True, False)}
    for file in folder.glob("*"):
        if file.name in ("chat_template.jinja", "tokenizer_config.json"):
            file.write_text(file.read_text().replace("enable_thinking is defined", "false"))
    rendering = open_rendering(folder, "m", ProxyConfig())
    assert rendering.name == "qwen3"
    assert rendering.variables.values == {}
    assert fulfilled(rendering, NO_EFFORT, named("enable_thinking", False)) == ({}, ("e", "k.enable_thinking"))


def test_the_setting_of_thinking_decides_before_agents(tmp_path: Path) -> None:
    rendering = template_rendering(tmp_path / "m", FORMS["qwen3"], thinking=False)
    assert fulfilled(rendering, NO_EFFORT, named("enable_thinking", True)) == ({}, ("e", "k.enable_thinking"))


def test_wishes_become_variables_and_what_is_left_is_named(tmp_path: Path) -> None:
    thinks = template_rendering(tmp_path / "a", FORMS["qwen3"])
    assert fulfilled(thinks, NO_EFFORT) == ({"enable_thinking": False}, ())
    assert fulfilled(thinks, effort("high")) == ({}, ("e",))
    assert fulfilled(thinks, Wish("thinking")) == ({}, ("thinking",))
    grades = template_rendering(tmp_path / "b", FORMS["gpt-oss"])
    assert fulfilled(grades, effort("high")) == ({"reasoning_effort": "high"}, ())
    assert fulfilled(grades, effort("xhigh")) == ({}, ("e",))
    assert fulfilled(grades, NO_EFFORT) == ({}, ("e",))
    # Who names the variable knows the template; of two wishes the first counts.
    assert fulfilled(grades, named("reasoning_effort", "max"), effort("low")) == ({"reasoning_effort": "max"}, ("e",))
    assert fulfilled(grades, named("reasoning_effort", "low"), effort("low")) == ({"reasoning_effort": "low"}, ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("date_string", {"a": 1}),
        ("date_string", "x" * 201),
        ("messages", "x"),
        ("chat_template", "{{ 1 }}"),
        ("add_generation_prompt", False),
        ("bos_token", "<x>"),
        ("tokenize", False),
        ("no_such_variable", 1),
    ],
)
def test_only_plain_values_of_a_templates_own_variables_reach_it(tmp_path: Path, name: str, value: Any) -> None:
    rendering = template_rendering(tmp_path / "m", FORMS["llama-3"])
    assert fulfilled(rendering, named(name, value)) == ({}, (f"k.{name}",))
    assert fulfilled(rendering, named("date_string", "1 May")) == ({"date_string": "1 May"}, ())


def test_under_its_variables_a_rendering_writes_what_the_template_writes(tmp_path: Path) -> None:
    rendering = template_rendering(tmp_path / "m", FORMS["gpt-oss"])
    low = rendering.under({"reasoning_effort": "low"})
    assert rendering.tokenizer.decode(low.render(USER, None)) == (
        "<|start|>system<|message|>Reasoning: low<|end|><|start|>user<|message|>Hi<|end|><|start|>assistant"
    )
    assert rendering.under({"reasoning_effort": "low"}) is low
    assert rendering.under({}) is rendering


def test_names_of_a_template_are_those_that_it_does_not_set() -> None:
    source = "{% set a = b %}{% generation %}{{ a + c }}{% endgeneration %}{% for m in messages %}{{ m.d }}{% endfor %}"
    assert template_names(source) == {"b", "c", "messages"}
    assert template_names("{% broken") == frozenset()
    assert template_names(None) == frozenset()
