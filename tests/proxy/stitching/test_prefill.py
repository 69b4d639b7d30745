"""Answers that the agent began (Messages): the model continues the agent's text, and turns stay exact."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from support_scripted_engine import Script
from support_way import Way, ids_of, text_of

from weir.store.records.call_record import CallRecord, Stitch, unpack_ids

USER: Any = [{"role": "user", "content": "Add."}]
BODY: dict[str, Any] = {"model": "weir", "max_tokens": 50}


def begun(text: str) -> list[Any]:
    return [*USER, {"role": "assistant", "content": text}]


def ask(way: Way, messages: list[Any], **fields: Any) -> httpx.Response:
    answer = way.proxy.post("/s/one/v1/messages", BODY | {"messages": messages} | fields)
    assert answer.status_code == 200, answer.text
    return answer


def shown(answer: httpx.Response, stream: bool) -> str:
    """The text of a message, whole or streamed."""
    if not stream:
        return "".join(block["text"] for block in answer.json()["content"])
    data = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert data[-1]["type"] == "message_stop"
    return "".join(one["delta"].get("text", "") for one in data if one["type"] == "content_block_delta")


def through(record: CallRecord) -> bytes:
    return record.prompt_ids + record.output_ids


@pytest.mark.parametrize("stream", [False, True])
def test_only_what_the_model_adds_is_shown_and_the_next_turn_is_exact(way: Way, stream: bool) -> None:
    way.say(" three, I think.", "Yes.")
    assert shown(ask(way, begun("The sum is"), stream=stream), stream) == " three, I think."
    ask(way, [*begun("The sum is three, I think."), {"role": "user", "content": "Sure?"}])
    first, second = way.proxy.records()
    prompt = text_of(unpack_ids(first.prompt_ids).tolist())
    assert prompt.startswith("<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n")
    assert prompt.endswith("The sum is")
    assert text_of(unpack_ids(first.prompt_ids).tolist()[-first.forced :]).endswith("The sum is")
    assert json.loads(first.answer)["content"] == "The sum is three, I think."
    assert (second.stitch, second.stitch_call) == (Stitch.BRIDGED, first.call_id)
    assert second.prompt_ids.startswith(through(first))


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_in_the_agents_own_text_ends_nothing(way: Way, stream: bool) -> None:
    way.say("\n{}\n``` and more")
    answer = ask(way, begun("```json"), stop_sequences=["```"], stream=stream)
    assert shown(answer, stream).strip() == "{}"
    assert '"stop_reason":"stop_sequence"' in answer.text
    (record,) = way.proxy.records()
    assert json.loads(record.answer)["content"].startswith("```json\n{}")


def test_an_answer_that_was_cut_continues_with_its_exact_ids(way: Way) -> None:
    odd = [token for letter in "The sum" for token in ids_of(letter)[:-1]]
    assert odd != ids_of("The sum")[:-1]
    way.say(Script(ids=odd, finish="length"), " is three.", "Yes.")
    assert shown(ask(way, USER), stream=False) == "The sum"
    assert shown(ask(way, begun("The sum")), stream=False) == " is three."
    ask(way, [*begun("The sum is three."), {"role": "user", "content": "Sure?"}])
    cut, whole, after = way.proxy.records()
    assert whole.prompt_ids == through(cut)
    assert (whole.stitch, whole.stitch_call, whole.forced) == (Stitch.BRIDGED, cut.call_id, len(odd))
    assert whole.session_id == cut.session_id
    assert (after.stitch, after.stitch_call) == (Stitch.BRIDGED, whole.call_id)
    assert after.prompt_ids.startswith(through(whole))


def test_an_answer_that_had_ended_is_continued_before_its_end(way: Way) -> None:
    way.say("The sum", " is three.")
    ask(way, USER)
    assert shown(ask(way, begun("The sum")), stream=False) == " is three."
    ended, whole = way.proxy.records()
    assert whole.prompt_ids == through(ended)[:-4]
    assert (whole.stitch, whole.stitch_differs_at) == (Stitch.TEMPLATE_STRIP, len(through(ended)) // 4 - 1)


def test_its_tokens_are_counted(way: Way) -> None:
    counts = [
        way.proxy.post("/v1/messages/count_tokens", {"model": "weir", "messages": messages}).json()["input_tokens"]
        for messages in (USER, begun("The sum is"))
    ]
    assert counts[1] - counts[0] == len(ids_of("The sum is")) - 1
