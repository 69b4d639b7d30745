"""LangChain's agent over langchain-openai, by chat and by responses, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from support_adder import ASKS, TASK


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
    state = agent.invoke({"messages": [("user", TASK)]})

    assert state["messages"][-1].text == "The sum is 16."
    assert [message.content for message in state["messages"] if message.type == "tool"] == ["5", "15", "16"]
    assert [body["stream"] for body in theatre.engine.requests] == [stream] * 3
    theatre.hold_line(session, answers)
    assert "<tool_response>\n16\n</tool_response>" in theatre.last_turn(session)
