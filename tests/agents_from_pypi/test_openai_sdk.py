"""The openai SDK as agents use it: loops over tools, by chat and by responses, in one thread and in an event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from support_adder import ASKS, TASK

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
CHAT_TOOLS: Any = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}]
TOOLS: Any = [{"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA}]


def added(arguments: str) -> str:
    numbers = json.loads(arguments)
    return str(numbers["a"] + numbers["b"])


def by_chat(client: openai.OpenAI) -> str:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        completion = client.chat.completions.create(model="weir", messages=messages, tools=CHAT_TOOLS)
        message = completion.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            assert call.type == "function"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": added(call.function.arguments)})


def by_streamed_chat(client: openai.OpenAI) -> str:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        with client.chat.completions.stream(model="weir", messages=messages, tools=CHAT_TOOLS) as stream:
            message: Any = stream.get_final_completion().choices[0].message
        messages.append({"role": "assistant", "content": message.content, "tool_calls": message.tool_calls})
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": added(call.function.arguments)})


def outputs_of(response: Any) -> list[Any]:
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": added(item.arguments)}
        for item in response.output
        if item.type == "function_call"
    ]


def by_responses(client: openai.OpenAI) -> str:
    items: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        response = client.responses.create(model="weir", input=items, tools=TOOLS, store=False)
        outputs = outputs_of(response)
        if not outputs:
            return response.output_text
        items += [*response.output, *outputs]


def by_streamed_responses(client: openai.OpenAI) -> str:
    items: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        texts = []
        with client.responses.stream(model="weir", input=items, tools=TOOLS) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    texts.append(event.delta)
            response: Any = stream.get_final_response()
        assert "".join(texts) == response.output_text
        outputs = outputs_of(response)
        if not outputs:
            return str(response.output_text)
        items += [*(item.to_dict() for item in response.output), *outputs]


def by_response_ids(client: openai.OpenAI) -> str:
    response = client.responses.create(model="weir", input=TASK, tools=TOOLS)
    while outputs := outputs_of(response):
        response = client.responses.create(model="weir", input=outputs, tools=TOOLS, previous_response_id=response.id)
    return response.output_text


async def _chat_in_an_event_loop(base_url: str) -> str:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    async with openai.AsyncOpenAI(base_url=base_url, api_key="agent") as client:
        while True:
            completion = await client.chat.completions.create(model="weir", messages=messages, tools=CHAT_TOOLS)
            message = completion.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                return str(message.content)
            for call in message.tool_calls:
                assert call.type == "function"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": added(call.function.arguments)})


async def _responses_in_an_event_loop(base_url: str) -> str:
    items: Any = TASK
    previous: str | None = None
    async with openai.AsyncOpenAI(base_url=base_url, api_key="agent") as client:
        while True:
            asked: Any = {"model": "weir", "input": items, "tools": TOOLS, "previous_response_id": previous}
            async with client.responses.stream(**asked) as stream:
                response: Any = await stream.get_final_response()
            items, previous = outputs_of(response), response.id
            if not items:
                return str(response.output_text)


def by_chat_in_an_event_loop(client: openai.OpenAI) -> str:
    return asyncio.run(_chat_in_an_event_loop(str(client.base_url)))


def by_responses_in_an_event_loop(client: openai.OpenAI) -> str:
    return asyncio.run(_responses_in_an_event_loop(str(client.base_url)))


@pytest.mark.parametrize(
    "agent",
    [
        by_chat,
        by_streamed_chat,
        by_chat_in_an_event_loop,
        by_responses,
        by_streamed_responses,
        by_response_ids,
        by_responses_in_an_event_loop,
    ],
)
def test_a_session_is_one_line_of_exact_turns(theatre: Any, agent: Callable[[openai.OpenAI], str]) -> None:
    answers = theatre.play(*ASKS)
    session = agent.__name__.replace("_", "-")
    client = openai.OpenAI(base_url=theatre.url(f"/g/openai/s/{session}/v1"), api_key="agent")
    assert agent(client) == "The sum is 16."
    theatre.hold_line(session, answers)
    assert "<tool_response>\n16\n</tool_response>" in theatre.last_turn(session)


def test_every_way_of_asking_is_the_same_prompt_to_the_model(theatre: Any) -> None:
    prompts = {}
    for agent in (by_chat, by_streamed_responses, by_response_ids):
        theatre.play(*ASKS)
        session = f"same-{agent.__name__}"
        agent(openai.OpenAI(base_url=theatre.url(f"/s/{session}/v1"), api_key="agent"))
        prompts[session] = [call.prompt_ids.tolist() for call in theatre.calls(session)]
    first, *others = prompts.values()
    assert others == [first, first]
