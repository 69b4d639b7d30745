"""Wishes that nothing here fulfils: tools of a host and other fields; refused, or accepted and named in the record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from support_way import Way, text_of

from weir.proxy.conversation.call_request import CallRequest, HostedTool
from weir.proxy.conversation.hosted_tools import without_hosted_tools
from weir.proxy.errors import BadRequest
from weir.store.maintenance.compact import compact
from weir.store.reader import connect

USER: Any = [{"role": "user", "content": "Hi"}]
ADD: Any = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}}
ANTHROPIC_ADD = {"name": "add", "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("kind", "dropped", "is_refused"),
    [
        ("web_search", [], True),
        ("web_search", ["web_search"], False),
        ("web_search_20250305", ["web_search"], False),
        ("local_shell", ["web_search", "local_shell"], False),
        ("web_searching", ["web_search"], True),
        ("custom", ["web_search"], True),
    ],
)
def test_types_that_a_setting_names_are_left_out(kind: str, dropped: list[str], is_refused: bool) -> None:
    request = CallRequest(
        model="weir", messages=[], hosted_tools=(HostedTool("tools[1]", kind),), ignored_fields=("x",)
    )
    if is_refused:
        with pytest.raises(BadRequest, match=rf"'{kind}'.*proxy\.drop_builtin_tools") as caught:
            without_hosted_tools(request, dropped)
        assert caught.value.param == "tools[1]"
    else:
        assert without_hosted_tools(request, dropped).ignored_fields == ("x", "tools[1]")


ROUTES: dict[str, tuple[str, dict[str, Any], str]] = {
    "responses": ("/v1/responses", {"input": "Hi", "tools": [ADD, {"type": "web_search"}]}, "tools[1]"),
    "messages": (
        "/v1/messages",
        {
            "messages": USER,
            "max_tokens": 9,
            "tools": [{"type": "web_search_20250305", "name": "web_search"}, ANTHROPIC_ADD],
        },
        "tools.0",
    ),
}


@pytest.mark.parametrize("dialect", ROUTES)
def test_a_dropped_tool_is_not_in_the_prompt_and_is_named_in_the_record(
    open_way: Callable[..., Way], dialect: str
) -> None:
    path, body, where = ROUTES[dialect]
    way = open_way(drop_builtin_tools=["web_search"])
    way.say("Hello.")
    without = [tool for tool in body["tools"] if not tool.get("type", "").startswith("web_search")]
    for tools in (body["tools"], without):
        assert way.proxy.post(path, {"model": "weir"} | body | {"tools": tools}).status_code == 200
    dropped, plain = way.proxy.records()
    assert dropped.prompt_ids == plain.prompt_ids
    assert (dropped.ignored_fields, plain.ignored_fields) == ((where,), ())


@pytest.mark.parametrize("dialect", ROUTES)
def test_without_the_setting_the_call_is_refused_and_nothing_reaches_the_engine(way: Way, dialect: str) -> None:
    path, body, where = ROUTES[dialect]
    answer = way.proxy.post(path, {"model": "weir"} | body)
    assert answer.status_code == 400 and where in answer.text and "proxy.drop_builtin_tools" in answer.text
    assert way.engine.requests == []


@pytest.mark.parametrize("compacted", [False, True])
def test_wishes_that_no_template_here_knows_are_accepted_and_are_a_column(way: Way, compacted: bool) -> None:
    way.say("Hello.")
    chat = {"reasoning_effort": "high", "verbosity": "low", "chat_template_kwargs": {"a": 1}}
    for path, body in (
        ("/s/a/v1/chat/completions", {"messages": USER} | chat),
        ("/s/b/v1/responses", {"input": "Hi", "reasoning": {"effort": "low"}, "text": {"verbosity": "low"}}),
        ("/s/c/v1/messages", {"messages": USER, "max_tokens": 9, "output_config": {"effort": "low"}}),
        ("/s/d/v1/chat/completions", {"messages": USER}),
    ):
        answer = way.proxy.post(path, {"model": "weir"} | body)
        assert answer.status_code == 200, answer.text
    if compacted:
        assert compact(way.proxy.store, seal_open=True).calls == 4
    with connect(way.proxy.store) as db:
        rows = db.sql("SELECT ignored_fields FROM calls ORDER BY session_id").fetchall()
    assert [fields for (fields,) in rows] == [
        ["chat_template_kwargs.a", "reasoning_effort", "verbosity"],
        ["reasoning.effort", "text.verbosity"],
        ["output_config.effort"],
        [],
    ]


def test_a_function_of_a_namespace_is_called_with_both_names_and_its_turn_stays_exact(way: Way) -> None:
    """What codex needs: it finds a function of a namespace by the two fields `namespace` and `name` only."""
    spawn = {"type": "function", "name": "spawn", "description": "Starts one.", "parameters": {"type": "object"}}
    tools: Any = [ADD, {"type": "namespace", "name": "agents", "description": "Sub-agents.", "tools": [spawn]}]
    call = '<tool_call>\n{"name": "agents__spawn", "arguments": {"task": "a"}}\n</tool_call>'
    way.say(call, call, "Done.")
    client = openai.OpenAI(base_url=f"{way.proxy.url}/v1", api_key="any")
    whole = client.responses.create(model="weir", input="Hi", tools=tools)
    with client.responses.stream(model="weir", input="Hi", tools=tools) as stream:
        streamed = stream.get_final_response()
    for answer in (whole, streamed):
        (item,) = [item for item in answer.output if item.type == "function_call"]
        assert (item.namespace, item.name, json.loads(item.arguments)) == ("agents", "spawn", {"task": "a"})
    shown = text_of(way.engine.requests[0]["input_ids"])
    assert "agents__spawn" in shown and "Sub-agents." in shown
    result = {"type": "function_call_output", "call_id": item.call_id, "output": "started"}
    client.responses.create(
        model="weir", input=[{"role": "user", "content": "Hi"}, item.model_dump(exclude_none=True), result], tools=tools
    )
    *_, last = way.proxy.records()
    assert last.stitch == "bridged"
