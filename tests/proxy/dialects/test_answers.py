"""Several answers to one request, required tool calls, and answers in a given format, over real sockets."""

import json
from typing import Any

import openai
import pytest
from support_scripted_engine import Script
from support_way import Way, ids_of, text_of

from weir.store.records.call_record import FinishReason, Stitch, unpack_ids

USER: Any = [{"role": "user", "content": "Hi"}]
TOOLS: Any = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("add", "sub")]
REST = ' {"a": 1}}\n</tool_call>'
FORCED = '<tool_call>\n{"name": "add", "arguments":'


def answers_by_seed(way: Way) -> None:
    """The engine's answer names the seed that it was asked for."""
    way.engine.script = lambda body: Script(ids=ids_of(f"seed {body['sampling_params'].get('sampling_seed')}"))


@pytest.mark.parametrize("stream", [False, True])
def test_each_of_several_answers_has_its_own_seed_and_record(way: Way, stream: bool) -> None:
    answers_by_seed(way)
    client = way.proxy.client()
    contents = ["", "", ""]
    if stream:
        options: Any = {"include_usage": True}
        chunks = list(
            client.chat.completions.create(
                model="weir", messages=USER, n=3, seed=5, stream=True, stream_options=options
            )
        )
        for chunk in chunks:
            for choice in chunk.choices:
                contents[choice.index] += choice.delta.content or ""
        reasons = {c.index: c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason}
        assert reasons == {0: "stop", 1: "stop", 2: "stop"}
        roles = [c.index for chunk in chunks for c in chunk.choices if c.delta.role]
        assert sorted(roles) == [0, 1, 2]
        usage = chunks[-1].usage
    else:
        answer = client.chat.completions.create(model="weir", messages=USER, n=3, seed=5)
        contents = [choice.message.content or "" for choice in answer.choices]
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        usage = answer.usage
    records = sorted(way.proxy.records(), key=lambda record: record.choice)
    assert len(set(contents)) == 3
    assert contents[0] == "seed 5"
    assert [text_of(unpack_ids(r.output_ids).tolist()) for r in records] == [f"{c}<|im_end|>" for c in contents]
    assert [record.choice for record in records] == [0, 1, 2]
    assert {record.request_id for record in records} == {records[0].call_id}
    assert len({record.session_id for record in records}) == 1
    assert usage is not None
    assert usage.prompt_tokens == len(unpack_ids(records[0].prompt_ids))
    assert usage.completion_tokens == sum(len(unpack_ids(record.output_ids)) for record in records)


def test_streamed_answers_come_interleaved(way: Way) -> None:
    scripts = [Script(ids=ids_of("one two three"), cut="wait", cut_after=3), Script(ids=ids_of("four five six"))]
    way.say(*scripts)
    seen: list[int] = []
    ends: list[int] = []
    for chunk in way.proxy.client().chat.completions.create(model="weir", messages=USER, n=2, stream=True):
        (choice,) = chunk.choices
        seen.append(choice.index)
        if choice.finish_reason:
            ends.append(len(seen))
            if len(ends) == 1:
                way.engine.wait_waiting()
                way.engine.go_on()
    assert set(seen[: ends[0]]) == {0, 1}
    assert len(set(seen[ends[0] :])) == 1
    assert ends[1] == len(seen)


def test_whichever_of_several_answers_the_agent_goes_on_from_its_turn_is_exact(way: Way) -> None:
    answers_by_seed(way)
    client = way.proxy.client()
    answer = client.chat.completions.create(model="weir", messages=USER, n=2, seed=1)
    for choice in answer.choices:
        history = [*USER, {"role": "assistant", "content": choice.message.content}, {"role": "user", "content": "More"}]
        client.chat.completions.create(model="weir", messages=history, seed=1)
    first, second, *later = way.proxy.records()
    assert [record.stitch for record in later] == [Stitch.BRIDGED, Stitch.BRIDGED]
    by_choice = sorted((first, second), key=lambda record: record.choice)
    assert [record.stitch_call for record in later] == [record.call_id for record in by_choice]
    assert len({record.session_id for record in way.proxy.records()}) == 1


def test_one_failed_answer_of_several_fails_the_request_and_keeps_every_record(way: Way) -> None:
    way.say(Script(ids=[], status=400), Script(ids=ids_of("Hello."), cut="wait", cut_after=2))
    with pytest.raises(openai.BadRequestError, match="scripted refusal"):
        way.proxy.client().chat.completions.create(model="weir", messages=USER, n=2)
    records = way.proxy.records()
    assert [record.finish for record in records] == [FinishReason.ERROR] * 2
    assert sorted(record.choice for record in records) == [0, 1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("choice", "forced", "rest"),
    [
        ({"type": "function", "function": {"name": "add"}}, FORCED, REST),
        ("required", '<tool_call>\n{"name": "', 'add", "arguments":' + REST),
    ],
)
def test_a_tool_call_that_must_come_is_forced_by_the_prompt(
    way: Way, stream: bool, choice: Any, forced: str, rest: str
) -> None:
    way.say(rest)
    client = way.proxy.client()
    asked: Any = {"model": "weir", "messages": USER, "tools": TOOLS, "tool_choice": choice}
    if stream:
        with client.chat.completions.stream(**asked) as parts:
            told: Any = parts.get_final_completion().choices[0]
    else:
        told = client.chat.completions.create(**asked).choices[0]
    assert told.finish_reason == "tool_calls"
    (call,) = told.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1})
    (record,) = way.proxy.records()
    prompt = unpack_ids(record.prompt_ids).tolist()
    assert way.engine.requests[-1]["input_ids"] == prompt
    assert text_of(prompt[-record.forced :]) == forced
    assert text_of(prompt).endswith("<|im_start|>assistant\n" + forced)
    assert unpack_ids(record.output_ids).tolist() == ids_of(rest)


def test_a_required_call_with_one_tool_is_forced_up_to_its_arguments(way: Way) -> None:
    way.say(REST)
    asked: Any = {"messages": USER, "tools": TOOLS[:1], "tool_choice": "required"}
    told = way.proxy.client().chat.completions.create(model="weir", **asked).choices[0]
    assert [call.function.name for call in told.message.tool_calls or []] == ["add"]
    (record,) = way.proxy.records()
    assert text_of(unpack_ids(record.prompt_ids).tolist()[-record.forced :]) == FORCED


def test_the_turn_after_a_forced_call_is_exact(way: Way) -> None:
    way.say(REST)
    client = way.proxy.client()
    told: Any = client.chat.completions.create(model="weir", messages=USER, tools=TOOLS, tool_choice="required")
    way.say("Done.")
    result = {"role": "tool", "tool_call_id": "x", "content": "3"}
    message = told.choices[0].message.model_dump(exclude_none=True)
    client.chat.completions.create(model="weir", messages=[*USER, message, result], tools=TOOLS)
    first, second = way.proxy.records()
    exact = unpack_ids(first.prompt_ids).tolist() + unpack_ids(first.output_ids).tolist()
    assert second.stitch is Stitch.BRIDGED
    assert unpack_ids(second.prompt_ids).tolist()[: len(exact)] == exact


def test_without_parallel_calls_the_answer_ends_after_the_first(way: Way) -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    close = ids_of("</tool_call>")[0]
    way.engine.script = lambda body: Script(
        ids=ids_of(call)[:-1] if close in body["sampling_params"]["stop_token_ids"] else ids_of(call + "\n" + call)
    )
    client = way.proxy.client()
    told: Any = client.chat.completions.create(model="weir", messages=USER, tools=TOOLS, parallel_tool_calls=False)
    assert [c.function.name for c in told.choices[0].message.tool_calls] == ["add"]
    message = told.choices[0].message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "3"}
    client.chat.completions.create(model="weir", messages=[*USER, message, result], tools=TOOLS)
    assert way.proxy.records()[-1].stitch is Stitch.BRIDGED


def test_a_response_format_reaches_the_engine_as_a_schema(way: Way) -> None:
    way.say('{"a": 1}')
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    told = way.proxy.client().chat.completions.create(
        model="weir",
        messages=USER,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )
    assert told.choices[0].message.content == '{"a": 1}'
    assert json.loads(way.engine.requests[-1]["sampling_params"]["json_schema"]) == schema
    assert json.loads(way.proxy.records()[-1].sampling["json_schema"]) == schema


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"1000000": 1}}, "logit_bias"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name_before_the_engine_is_asked(
    way: Way, fields: dict[str, Any], param: str
) -> None:
    answer = way.proxy.post("/v1/chat/completions", {"model": "weir", "messages": USER} | fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert way.engine.requests == []


def test_a_developer_speaks_as_the_system_where_the_template_has_no_developer(way: Way) -> None:
    way.say("Hello.")
    messages: Any = [{"role": "developer", "content": "Be brief."}, *USER]
    way.proxy.client().chat.completions.create(model="weir", messages=messages)
    assert text_of(way.engine.requests[-1]["input_ids"]).startswith("<|im_start|>system\nBe brief.<|im_end|>")
