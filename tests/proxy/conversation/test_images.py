"""Images in messages and in results of tools: refused, or a text in their place that the record names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support_way import Way, text_of

from weir.proxy.dialects.body import IMAGE
from weir.store.records.call_record import Stitch, unpack_ids

URL = "data:image/png;base64,iVBORw0KGgo="
SOURCE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
TOOL = {"name": "look", "parameters": {"type": "object"}}
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
# For each dialect a question with an image and the result of a tool that is one.
BODIES: dict[str, tuple[str, dict[str, Any], tuple[str, str]]] = {
    "chat": (
        "/v1/chat/completions",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "See "}, {"type": "image_url", "image_url": {"url": URL}}],
                },
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url", "image_url": {"url": URL}}]},
            ],
            "tools": [{"type": "function", "function": TOOL}],
        },
        ("messages[0].content[1]", "messages[2].content[0]"),
    ),
    "responses": (
        "/v1/responses",
        {
            "input": [
                {
                    "role": "user",
                    "content": [{"type": "input_text", "text": "See "}, {"type": "input_image", "image_url": URL}],
                },
                {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": URL}]},
            ],
            "tools": [{"type": "function"} | TOOL],
        },
        ("input[0].content[1]", "input[2].output[0]"),
    ),
    "messages": (
        "/v1/messages",
        {
            "max_tokens": 50,
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "See "}, {"type": "image", "source": SOURCE}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image", "source": SOURCE}]}
                    ],
                },
            ],
            "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        },
        ("messages.0.content.1", "messages.2.content.0.content.0"),
    ),
}


@pytest.mark.parametrize("dialect", BODIES)
def test_by_default_an_image_is_refused_by_its_path_and_nothing_is_sent(way: Way, dialect: str) -> None:
    path, body, images = BODIES[dialect]
    for _ in range(2):  # a history that was seen before is refused again
        answer = way.proxy.post(path, {"model": "weir"} | body)
        assert answer.status_code == 400
        assert images[0] in answer.text and "proxy.images" in answer.text and "passthrough" in answer.text
    assert way.engine.requests == []


@pytest.mark.parametrize("dialect", BODIES)
def test_a_text_stands_for_every_image_and_the_record_names_them(open_way: Callable[..., Way], dialect: str) -> None:
    path, body, images = BODIES[dialect]
    way = open_way(images="placeholder")
    way.say("A cat.")
    for _ in range(2):
        answer = way.proxy.post(path, {"model": "weir"} | body)
        assert answer.status_code == 200, answer.text
    for record in way.proxy.records():
        prompt = text_of(unpack_ids(record.prompt_ids).tolist())
        assert f"<|im_start|>user\nSee {IMAGE}<|im_end|>" in prompt
        assert f"<tool_response>\n{IMAGE}\n</tool_response>" in prompt
        assert record.ignored_fields == images
        assert b"iVBORw0KGgo=" in record.request


def test_the_same_images_are_the_same_prompt_in_every_dialect(open_way: Callable[..., Way]) -> None:
    way = open_way(images="placeholder")
    way.say("A cat.")
    for path, body, _ in BODIES.values():
        assert way.proxy.post(path, {"model": "weir"} | body).status_code == 200
    questions = [unpack_ids(record.prompt_ids).tolist() for record in way.proxy.records()]
    assert [text_of(ids)[text_of(ids).index("See ") :] for ids in questions] == [
        text_of(questions[0])[text_of(questions[0]).index("See ") :]
    ] * 3


def test_the_turn_after_a_screenshot_continues_the_exact_ids(open_way: Callable[..., Way]) -> None:
    way = open_way(images="placeholder")
    way.say("A cat.", "A dog.")
    path, body, _ = BODIES["chat"]
    padding = {"role": "system", "content": "Look. " * 400}  # long enough for its beginning to be known
    messages: list[Any] = [padding, *body["messages"]]
    again = [*messages, {"role": "assistant", "content": "A cat."}, {"role": "user", "content": "Sure?"}]
    for sent in (messages, again):
        assert way.proxy.post(f"/s/one{path}", {"model": "weir"} | body | {"messages": sent}).status_code == 200
    first, second = way.proxy.records()
    assert (second.stitch, second.stitch_call) == (Stitch.BRIDGED, first.call_id)
    assert second.prompt_ids.startswith(first.prompt_ids + first.output_ids)
    assert first.ignored_fields == second.ignored_fields == ("messages[1].content[1]", "messages[3].content[0]")
