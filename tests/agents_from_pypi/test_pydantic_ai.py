"""pydantic-ai's agents, by chat and by responses: tools, whole and streamed, and each of its structured outputs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from support_adder import ASKS, TASK

MODELS = pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel], ids=["chat", "responses"])


class Sum(BaseModel):
    """What the model is to answer with."""

    total: int
    words: str


def model_at(url: str, kind: type[Any]) -> Any:
    return kind("weir", provider=OpenAIProvider(base_url=url, api_key="agent"))


async def run_agent(url: str, kind: type[Any], *, stream: bool) -> str:
    agent = Agent(model_at(url, kind), instructions="You add.")

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        """Adds two integers."""
        return a + b

    async def watch(_: Any, events: Any) -> None:
        async for _event in events:
            pass

    handler = watch if stream else None  # with one, it streams
    return str((await agent.run(TASK, event_stream_handler=handler)).output)


@MODELS
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_session_is_one_line_of_exact_turns(theatre: Any, kind: type[Any], stream: bool) -> None:
    answers = theatre.play(*ASKS)
    session = f"pydantic-ai-{kind.__name__}-{stream}"
    assert asyncio.run(run_agent(theatre.url(f"/s/{session}/v1"), kind, stream=stream)) == "The sum is 16."
    theatre.hold_line(session, answers)
    assert "<tool_response>\n16\n</tool_response>" in theatre.last_turn(session)


@MODELS
@pytest.mark.parametrize(
    ("way", "kept"),  # the properties of the schema that the engine's grammar is to keep
    [(NativeOutput, ["total", "words"]), (PromptedOutput, []), (ToolOutput, None)],
    ids=["native", "prompted", "tool"],
)
def test_structured_output(theatre: Any, kind: type[Any], way: type[Any], kept: list[str] | None) -> None:
    said = json.dumps({"total": 16, "words": "sixteen"})
    # The one tool is demanded: the prompt ends with the beginning of its call.
    answers = theatre.play(said + "}\n</tool_call>" if way is ToolOutput else said)
    session = f"pydantic-ai-{kind.__name__}-{way.__name__}"
    agent: Any = Agent(model_at(theatre.url(f"/s/{session}/v1"), kind), output_type=way(Sum))
    assert asyncio.run(agent.run(TASK)).output == Sum(total=16, words="sixteen")
    theatre.hold_line(session, answers)
    (request,) = theatre.engine.requests
    schema = request["sampling_params"].get("json_schema")
    assert (schema and list(json.loads(schema).get("properties", []))) == kept
