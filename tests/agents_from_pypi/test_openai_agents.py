"""The OpenAI Agents SDK, by both interfaces that it speaks, whole and streamed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI
from support_adder import ASKS, TASK

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)


@function_tool
def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


async def run_agent(base_url: str, kind: type[Any], *, stream: bool, by_ids: bool) -> str:
    async with AsyncOpenAI(base_url=base_url, api_key="agent") as client:
        model = kind(model="weir", openai_client=client)
        agent = Agent(
            name="Adder",
            instructions="You add.",
            model=model,
            tools=[add],
            model_settings=ModelSettings(parallel_tool_calls=True),
        )
        asked: Any = {
            "input": TASK,
            "run_config": RunConfig(tracing_disabled=True),
            "auto_previous_response_id": by_ids,
        }
        if not stream:
            return str((await Runner.run(agent, **asked)).final_output)
        result = Runner.run_streamed(agent, **asked)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("kind", "by_ids"),
    [(OpenAIChatCompletionsModel, False), (OpenAIResponsesModel, False), (OpenAIResponsesModel, True)],
    ids=["chat", "responses", "responses by ids"],
)
def test_a_session_is_one_line_of_exact_turns(theatre: Any, kind: type[Any], by_ids: bool, stream: bool) -> None:
    answers = theatre.play(*ASKS)
    session = f"agents-{kind.__name__}-{by_ids}-{stream}"
    url = theatre.url(f"/s/{session}/v1")
    assert asyncio.run(run_agent(url, kind, stream=stream, by_ids=by_ids)) == "The sum is 16."
    theatre.hold_line(session, answers)
    assert "<tool_response>\n16\n</tool_response>" in theatre.last_turn(session)
