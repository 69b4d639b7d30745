"""Wishes for thinking and words, as each dialect has them."""

from __future__ import annotations

from typing import Any

import pytest

from weir.proxy.conversation.call_request import Wish
from weir.proxy.dialects.wishes import in_chat, in_messages, in_responses
from weir.proxy.errors import BadRequest

ON = (("enable_thinking", True), ("thinking", True))
OFF = (("enable_thinking", False), ("thinking", False))


def test_chat_names_effort_verbosity_and_any_variable() -> None:
    wishes = in_chat(
        {"reasoning_effort": "high", "verbosity": "low", "chat_template_kwargs": {"a": 1, "b": None, "c": False}}
    )
    assert wishes == (
        Wish("chat_template_kwargs.a", (("a", 1),), names_variable=True),
        Wish("chat_template_kwargs.c", (("c", False),), names_variable=True),
        Wish("reasoning_effort", (("reasoning_effort", "high"),)),
        Wish("verbosity", (("verbosity", "low"),)),
    )
    assert in_chat({"messages": []}) == ()


def test_no_effort_is_no_thinking() -> None:
    assert in_chat({"reasoning_effort": "none"})[0].variables == (("reasoning_effort", "none"), *OFF)


def test_responses_names_members_of_reasoning_and_of_text() -> None:
    wishes = in_responses({"reasoning": {"effort": "low", "summary": "auto", "x": None}, "text": {"verbosity": "high"}})
    assert wishes == (
        Wish("reasoning.effort", (("reasoning_effort", "low"),)),
        Wish("reasoning.summary"),
        Wish("text.verbosity", (("verbosity", "high"),)),
    )


@pytest.mark.parametrize(
    ("thinking", "variables"),
    [
        ({"type": "enabled"}, ON),
        ({"type": "disabled"}, (*OFF, ("reasoning_effort", "none"))),
        ({"type": "adaptive"}, ()),
    ],
)
def test_messages_names_thinking(thinking: dict[str, Any], variables: Any) -> None:
    assert in_messages({"thinking": thinking}) == (Wish("thinking", variables),)


def test_messages_names_a_budget_and_an_effort() -> None:
    wishes = in_messages({"thinking": {"type": "enabled", "budget_tokens": 9}, "output_config": {"effort": "max"}})
    assert [wish.where for wish in wishes] == ["thinking", "thinking.budget_tokens", "output_config.effort"]


@pytest.mark.parametrize(
    ("read", "fields", "param"),
    [
        (in_chat, {"chat_template_kwargs": "x"}, "chat_template_kwargs"),
        (in_chat, {"verbosity": 1}, "verbosity"),
        (in_responses, {"reasoning": {"effort": 1}}, "reasoning.effort"),
        (in_responses, {"text": {"verbosity": 1}}, "text.verbosity"),
        (in_messages, {"thinking": {"type": "perhaps"}}, "thinking.type"),
        (in_messages, {"thinking": {}}, "thinking.type"),
        (in_messages, {"output_config": {"effort": []}}, "output_config.effort"),
    ],
)
def test_another_type_is_refused_by_name(read: Any, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(fields)
    assert refused.value.param == param
