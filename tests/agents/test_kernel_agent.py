"""The example agent's conversation, against a stub of the model and of the judge."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from weir.agents.errors import AgentsError
from weir.agents.family import family_tasks
from weir.agents.heldout import measure
from weir.agents.kernel_agent import first_message, solve
from weir.agents.tasks import load_tasks

TASK = family_tasks("train")[0]
EXAMPLES = Path(__file__).parents[2] / "agents" / "examples"


def test_it_ends_at_the_first_correct_answer(stubs: Any) -> None:
    async def scenario() -> None:
        async with stubs(turns=4, feedback_lines=1, max_tokens=77) as s:
            s.proxy.answer_to = lambda messages: "right" if len(messages) == 3 else "wrong"
            info = await solve(TASK, f"{s.proxy.url}/v1", "key-1", s.config)
            assert info == {"turns": 2, "correct": True}
            first, second = s.proxy.calls
            assert first["messages"] == [{"role": "user", "content": TASK.prompt}]
            assert second["messages"][1:] == [
                {"role": "assistant", "content": "wrong"},
                {"role": "user", "content": "runtime_error: NameError: name 'exp' is not defined"},
            ]
            assert (second["key"], second["temperature"], second["max_tokens"]) == ("key-1", 1.0, 77)
            assert "kernel[(triton.cdiv" in s.judge.candidates[1]

    asyncio.run(scenario())


def test_it_stops_when_its_turns_are_used_up_and_leaves_the_last_answer_to_the_trainer(stubs: Any) -> None:
    async def scenario() -> None:
        async with stubs(turns=2) as s:
            info = await solve(TASK, f"{s.proxy.url}/v1", "key-1", s.config)
            assert info == {"turns": 2, "correct": None}
            assert (len(s.proxy.calls), len(s.judge.candidates)) == (2, 1)
            assert s.proxy.calls[1]["messages"][-1]["content"].endswith("line one\nline two")

    asyncio.run(scenario())


def test_a_task_without_a_template_shows_its_reference() -> None:
    task = next(task for task in load_tasks(EXAMPLES) if task.task_id == "softmax")
    message = first_message(task)
    assert message.startswith(task.prompt)
    assert task.reference_src in message


def test_measuring_judges_one_answer_per_session(stubs: Any) -> None:
    async def scenario() -> None:
        async with stubs(samples=2, turns=3) as s, s.control() as control:
            right = family_tasks("heldout")[0]
            s.proxy.answer_to = lambda messages: "right" if messages[0]["content"] == right.prompt else "wrong"
            measured = await measure(family_tasks("heldout")[:4], control, s.config)
            assert measured.num_answers == 8
            assert measured.correct == 0.25
            assert measured.reward == pytest.approx((2 * 1.0 + 6 * 0.1) / 8)
            assert measured.faults == {"runtime_error": 6}
            assert all("group_size" not in body for body in s.proxy.sessions.values())
            told = sorted((rewards["kernel_eval"], rewards["correct"]) for rewards in s.proxy.rewards.values())
            assert told == [(0.1, 0.0)] * 6 + [(1.0, 1.0)] * 2

    asyncio.run(scenario())


def test_measuring_refuses_to_average_over_what_failed(stubs: Any) -> None:
    async def scenario() -> None:
        async with stubs(samples=1) as s, s.control() as control:
            s.proxy.refuse_next = [403]
            with pytest.raises(AgentsError, match="1 of 2 measuring sessions failed; the first: ProxyRefused"):
                await measure(family_tasks("heldout")[:2], control, s.config)

    asyncio.run(scenario())
