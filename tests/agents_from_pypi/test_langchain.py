"""LangChain's agent over langchain-openai, by chat and by responses, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

THINK = "<think>\nTwo sums.\n</think>\n\n"
ASKS = [
    THINK + 'First.\n<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>\n'
    '<tool_call>\n{"name": "add", "arguments": {"a": 5, "b": 10}}\n</tool_call>',
    '<tool_call>\n{"name": "add", "arguments": {"a": 15, "b": 1}}\n</tool_call>',
    "The sum is 16.",
]


@tool
def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
def test_a_session_is_one_line_of_exact_turns(theatre: Any, responses: bool, stream: bool) -> None:
    answers = theatre.play(*ASKS)
    session = f"langchain-{responses}-{stream}"
    model: Any = ChatOpenAI(
        model="weir",
        base_url=theatre.url(f"/s/{session}/v1"),
        api_key="agent",  # type: ignore[arg-type]
        use_responses_api=responses,
        streaming=stream,
    )
    agent: Any = create_agent(model, [add], system_prompt="You add.")
    state = agent.invoke({"messages": [("user", "What is 2 + 3 + 10 + 1?")]})

    assert state["messages"][-1].text == "The sum is 16."
    assert [message.content for message in state["messages"] if message.type == "tool"] == ["5", "15", "16"]
    assert [body["stream"] for body in theatre.engine.requests] == [stream] * 3
    theatre.hold_line(session, answers)
    assert "<tool_response>\n16\n</tool_response>" in theatre.last_turn(session)
