"""Responses over real sockets: the openai SDK → proxy → sglang-router → scripted engine → record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from support_scripted_engine import Script
from support_way import Way, ids_of, text_of

from weir.store.records.call_record import SessionSource, Stitch, unpack_ids

TOOLS: Any = [
    {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": False}
]
THINK = "<think>\nLet me see.\n</think>\n\n"
CALLS = (
    'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "é"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
)


def events_of(way: Way, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """Names and data of a stream's events, as they were sent."""
    answer = way.proxy.post("/v1/responses", {"model": "weir", "input": "Hi", "stream": True} | fields)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in answer.text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def test_a_response_has_the_form_of_openai_and_repeats_what_was_asked(way: Way) -> None:
    way.say(f"{THINK}Hello there.")
    asked = {"instructions": "Be brief.", "metadata": {"run": "7"}, "temperature": 0.5, "tools": TOOLS}
    answer = way.proxy.post("/v1/responses", {"model": "weir", "input": "Hi"} | asked).json()
    (record,) = way.proxy.records()
    name = record.call_id.removeprefix("call_")
    num_prompt, num_output = len(unpack_ids(record.prompt_ids)), len(unpack_ids(record.output_ids))
    assert answer["id"] == f"resp_{name}"
    assert (answer["object"], answer["status"], answer["error"], answer["incomplete_details"]) == (
        "response",
        "completed",
        None,
        None,
    )
    assert {field: answer[field] for field in asked} == asked
    assert answer["output"] == [
        {
            "id": f"rs_{name}_0",
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Let me see."}],
            "encrypted_content": None,
            "status": "completed",
        },
        {
            "id": f"msg_{name}_1",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello there.", "annotations": [], "logprobs": []}],
            "status": "completed",
        },
    ]
    assert answer["usage"] == {
        "input_tokens": num_prompt,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": num_output,
        "output_tokens_details": {"reasoning_tokens": len(ids_of(THINK.rstrip())) - 1},
        "total_tokens": num_prompt + num_output,
    }
    assert (record.dialect, record.session_source, record.agent_ids) == (
        "responses",
        SessionSource.INFERRED,
        {"metadata.run": "7"},
    )


def test_streamed_items_are_added_grow_and_are_done_one_after_the_other(way: Way) -> None:
    way.say(Script(ids=ids_of(THINK + CALLS), tokens_per_chunk=3))
    events = events_of(way, tools=TOOLS)
    assert [name for name, _ in events] == [data["type"] for _, data in events]
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))

    def of_text(kind: str) -> list[str]:
        steps = ("output_item.added", "content_part.added", f"{kind}.delta", f"{kind}.done", "content_part.done")
        return [f"response.{step}" for step in (*steps, "output_item.done")]

    arguments = [f"function_call_arguments.{step}" for step in ("delta", "done")]
    of_call = [f"response.{step}" for step in ("output_item.added", *arguments, "output_item.done")]
    names = [name for i, (name, _) in enumerate(events) if i == 0 or events[i - 1][0] != name]
    assert names == [
        *("response.created", "response.in_progress"),
        *of_text("reasoning_text"),
        *of_text("output_text"),
        *of_call,
        *of_call,
        "response.completed",
    ]
    done = [data["item"] for name, data in events if name == "response.output_item.done"]
    last = events[-1][1]["response"]
    assert last["output"] == done
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call", "function_call"]
    texts = [
        "".join(data["delta"] for name, data in events if name == f"response.{kind}.delta")
        for kind in ("reasoning_text", "output_text")
    ]
    assert texts == ["Let me see.", "I add."]
    (record,) = way.proxy.records()
    assert last["usage"]["output_tokens"] == len(unpack_ids(record.output_ids))
    assert events[0][1]["response"]["status"] == "in_progress"


@pytest.mark.parametrize("stream", [False, True])
def test_a_streamed_response_ends_as_the_same_object_as_a_whole_one(way: Way, stream: bool) -> None:
    way.say(Script(ids=ids_of(THINK + CALLS), tokens_per_chunk=2))
    asked: Any = {"model": "weir", "input": "Hi", "tools": TOOLS, "include": ["message.output_text.logprobs"]}
    responses = way.proxy.client().responses
    if stream:
        with responses.stream(**asked) as events:
            response: Any = events.get_final_response()
    else:
        response = responses.create(**asked)
    reasoning, message, first, second = response.output
    assert reasoning.content[0].text == "Let me see."
    assert response.output_text == message.content[0].text == "I add."
    assert [(call.name, json.loads(call.arguments)) for call in (first, second)] == [
        ("add", {"a": 1, "b": "é"}),
        ("add", {}),
    ]
    assert message.content[0].logprobs
    assert response.status == "completed"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("by_id", [False, True])
def test_a_function_output_continues_the_exact_ids(way: Way, stream: bool, by_id: bool) -> None:
    way.say(THINK + CALLS, "Three.", "Done.")
    sdk = way.proxy.client()

    def turn(**fields: Any) -> Any:
        asked: Any = {"model": "weir", "tools": TOOLS, "instructions": "Be brief."} | fields
        if not stream:
            return sdk.responses.create(**asked)
        with sdk.responses.stream(**asked) as events:
            return events.get_final_response()

    def go_on(history: list[Any], response: Any, *new: Any) -> tuple[list[Any], Any]:
        history = [*history, *(item.to_dict() for item in response.output), *new]
        if by_id:
            return history, turn(input=list(new), previous_response_id=response.id)
        return history, turn(input=history)

    first = turn(input="Hi")
    outputs = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
        for call in first.output
        if call.type == "function_call"
    ]
    history, second = go_on([{"role": "user", "content": "Hi"}], first, *outputs)
    _, third = go_on(history, second, {"role": "user", "content": [{"type": "input_text", "text": "Thanks."}]})
    assert (second.output_text, third.output_text) == ("Three.", "Done.")
    records = way.proxy.records()
    assert [record.stitch for record in records] == [Stitch.NEW_ROOT, Stitch.BRIDGED, Stitch.BRIDGED]
    assert len({record.session_id for record in records}) == 1
    exact = unpack_ids(records[1].prompt_ids).tolist() + unpack_ids(records[1].output_ids).tolist()
    prompt = unpack_ids(records[2].prompt_ids).tolist()
    assert prompt[: len(exact)] == exact
    assert text_of(prompt[len(exact) :]) == "\n<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n"


def test_instructions_are_not_inherited(way: Way) -> None:
    way.say("Hello.")
    sdk = way.proxy.client()
    first = sdk.responses.create(model="weir", input="Hi", instructions="Be brief.")
    sdk.responses.create(model="weir", input="More", instructions="Be long.", previous_response_id=first.id)
    _, second = way.proxy.records()
    assert text_of(unpack_ids(second.prompt_ids).tolist()) == (
        "<|im_start|>system\nBe long.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_response_that_is_not_known_or_was_not_stored_cannot_be_continued(way: Way) -> None:
    way.say("Hello.")
    sdk = way.proxy.client()
    unstored = sdk.responses.create(model="weir", input="Hi", store=False)
    for name in (unstored.id, "resp_nobody"):
        with pytest.raises(openai.BadRequestError, match=f"'{name}' not found") as raised:
            sdk.responses.create(model="weir", input="More", previous_response_id=name)
        assert (raised.value.code, raised.value.param) == ("previous_response_not_found", "previous_response_id")


def test_an_answer_at_its_limit_is_incomplete(way: Way) -> None:
    way.say("One. Two. Three.")
    response = way.proxy.client().responses.create(model="weir", input="Hi", max_output_tokens=2)
    assert response.incomplete_details is not None
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    name, last = events_of(way, max_output_tokens=2)[-1]
    assert (name, last["response"]["status"]) == ("response.incomplete", "incomplete")


@pytest.mark.parametrize("text", ["", "<think>\nHm.\n</think>\n\n"])
def test_an_answer_without_text_has_an_empty_message(way: Way, text: str) -> None:
    way.say(text)
    response = way.proxy.client().responses.create(model="weir", input="Hi")
    assert (response.output[-1].type, response.output_text) == ("message", "")
    streamed = events_of(way)[-1][1]["response"]["output"]
    assert [item["type"] for item in streamed] == [item.type for item in response.output]


def test_an_engine_that_fails_in_the_middle_is_a_failed_response(open_way: Callable[..., Way]) -> None:
    way = open_way(lost_retries=0)
    way.say(Script(ids=ids_of("Hello there."), cut="die", cut_after=2))
    events = events_of(way)
    name, last = events[-1]
    assert (name, last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["code"] == "server_error"
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))


def test_a_schema_reaches_the_engine(way: Way) -> None:
    way.say("{}")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    way.proxy.client().responses.create(
        model="weir",
        input="Hi",
        text={"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}},
    )
    assert json.loads(way.engine.requests[-1]["sampling_params"]["json_schema"]) == schema


def test_what_is_not_served_is_refused_in_openais_form(way: Way) -> None:
    sdk = way.proxy.client()
    with pytest.raises(openai.BadRequestError) as raised:
        sdk.responses.create(model="weir", input="Hi", tools=[{"type": "web_search"}])
    assert (raised.value.param, raised.value.code) == ("tools[0]", "unsupported_parameter")
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve("resp_nobody")
    assert way.engine.requests == []
