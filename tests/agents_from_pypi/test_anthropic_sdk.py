"""The anthropic SDK as agents use it: loops over tools, whole, streamed, by its tool runner and in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anthropic
import pytest
from anthropic import beta_tool
from support_adder import ASKS, TASK

TOOLS: Any = [
    {
        "name": "add",
        "description": "Adds.",
        "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        "cache_control": {"type": "ephemeral"},
    }
]
ASKED: Any = {
    "model": "weir",
    "max_tokens": 500,
    "system": [{"type": "text", "text": "You add.", "cache_control": {"type": "ephemeral"}}],
    "tools": TOOLS,
}


def results_of(message: Any) -> list[Any]:
    return [
        {"type": "tool_result", "tool_use_id": block.id, "content": str(block.input["a"] + block.input["b"])}
        for block in message.content
        if block.type == "tool_use"
    ]


def whole(client: anthropic.Anthropic) -> str:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        message: Any = client.messages.create(messages=messages, **ASKED)
        if message.stop_reason != "tool_use":
            return str(message.content[-1].text)
        messages += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": results_of(message)},
        ]


def streamed(client: anthropic.Anthropic) -> str:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        with client.messages.stream(messages=messages, **ASKED) as stream:
            shown = "".join(stream.text_stream)
            message: Any = stream.get_final_message()
        assert shown == "".join(block.text for block in message.content if block.type == "text")
        if message.stop_reason != "tool_use":
            return shown
        messages += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": results_of(message)},
        ]


def with_a_tool_runner(client: anthropic.Anthropic) -> str:
    @beta_tool
    def add(a: int, b: int) -> str:
        """Adds.

        Args:
            a: One number.
            b: Another number.
        """
        return str(a + b)

    runner = client.beta.messages.tool_runner(
        model="weir", max_tokens=500, tools=[add], messages=[{"role": "user", "content": TASK}]
    )
    last: Any = runner.until_done()
    return str(last.content[-1].text)


async def _in_an_event_loop(base_url: str) -> str:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key="agent") as client:
        while True:
            async with client.messages.stream(messages=messages, **ASKED) as stream:
                message: Any = await stream.get_final_message()
            if message.stop_reason != "tool_use":
                return str(message.content[-1].text)
            turn = {"role": "assistant", "content": message.content}
            messages += [turn, {"role": "user", "content": results_of(message)}]


def in_an_event_loop(client: anthropic.Anthropic) -> str:
    return asyncio.run(_in_an_event_loop(str(client.base_url)))


@pytest.mark.parametrize("agent", [whole, streamed, with_a_tool_runner, in_an_event_loop])
def test_a_session_is_one_line_of_exact_turns(theatre: Any, agent: Callable[[anthropic.Anthropic], str]) -> None:
    answers = theatre.play(*ASKS)
    session = agent.__name__.replace("_", "-")
    client = anthropic.Anthropic(base_url=theatre.url(f"/g/anthropic/s/{session}"), api_key="agent")
    assert agent(client) == "The sum is 16."
    theatre.hold_line(session, answers)
    assert "<tool_response>\n16\n</tool_response>" in theatre.last_turn(session)


def test_count_tokens_says_what_the_next_turn_will_cost(theatre: Any) -> None:
    answers = theatre.play(*ASKS[2:])
    client = anthropic.Anthropic(base_url=theatre.url("/s/counted"), api_key="agent")
    messages: list[Any] = [{"role": "user", "content": TASK}]
    asked = {name: value for name, value in ASKED.items() if name != "max_tokens"}
    counted = client.messages.count_tokens(messages=messages, **asked).input_tokens
    client.messages.create(messages=messages, **ASKED)
    theatre.hold_line("counted", answers)
    assert [len(call.prompt_ids) for call in theatre.calls("counted")] == [counted]
