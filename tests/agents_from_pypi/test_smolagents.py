"""smolagents as it comes from PyPI, configured with nothing but base_url and api_key, and its sessions in the store.

It writes tool calls back as text of its own behind the model's answer. A CodeAgent's answers end at a stop string, so
that its rewritten turns still start with the exact ids; a ToolCallingAgent's end with the end of turn, so they do not.
"""

from __future__ import annotations

from typing import Any

import pytest
from smolagents import CodeAgent, OpenAIModel, Tool, ToolCallingAgent
from support_model import make_tokenizer

CODE_END = "</code>"
FIRST = "Thought: I add two numbers.\n<code>\ntotal = add(a=2, b=3)\nprint(total)\n</code>"
SECOND = "Thought: I add the third.\n<code>\ntotal = add(a=total, b=10)\nprint(total)\n</code>"
FINAL = "Thought: I know the sum.\n<code>\nfinal_answer(total)\n</code>"
TASK = "What is 2 + 3 + 10?"


class Add(Tool):  # type: ignore[misc]
    """A tool that keeps the arguments of its calls."""

    name = "add"
    description = "Adds two integers."
    inputs = {  # noqa: RUF012  # smolagents' own form
        "a": {"type": "integer", "description": "One number."},
        "b": {"type": "integer", "description": "Another number."},
    }
    output_type = "integer"

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int]] = []

    def forward(self, a: int, b: int) -> int:
        self.asked.append((a, b))
        return a + b


def code_agent(base_url: str, add: Add, *, api_key: str = "agent", stream: bool = False) -> Any:
    model = OpenAIModel("weir", api_base=base_url, api_key=api_key)
    return CodeAgent(tools=[add], model=model, stream_outputs=stream, verbosity_level=0)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_session_of_a_code_agent_is_one_line_of_exact_turns(theatre: Any, stream: bool) -> None:
    answers = theatre.play(FIRST, SECOND, FINAL, stopped_by=CODE_END)
    session, add = f"code-{stream}", Add()
    agent = code_agent(theatre.url(f"/s/{session}/v1"), add, stream=stream)

    assert agent.run(f"{TASK} ({session})") == 15
    assert add.asked == [(2, 3), (5, 10)]
    assert [body["stream"] for body in theatre.engine.requests] == [stream] * 3
    theatre.hold_line(session, answers)
    assert "Execution logs:\n15\n" in theatre.last_turn(session)
    query = (
        "SELECT DISTINCT session_source, stream, finish, finish_matched, role = 'root' FROM calls WHERE session_id = ?"
    )
    same = ("path", stream, "stop", f'"{CODE_END}"')
    assert sorted(theatre.rows(query, session)) == [(*same, False), (*same, True)]
    shown = "SELECT text FROM calls WHERE session_id = ? ORDER BY depth"
    assert theatre.column(shown, session) == [text.removesuffix(CODE_END) for text in (FIRST, SECOND, FINAL)]


def test_a_session_without_a_name_is_put_together_from_its_turns(theatre: Any) -> None:
    answers = theatre.play(FIRST, SECOND, FINAL, stopped_by=CODE_END)
    agent = code_agent(theatre.url(), Add())
    assert agent.run(f"{TASK} (nobody)") == 15
    sessions = theatre.column("SELECT session_id FROM calls WHERE session_source = 'inferred' GROUP BY ALL")
    assert len(sessions) == 1
    theatre.hold_line(sessions[0], answers)


def test_a_registered_sessions_api_key_is_all_that_names_it(theatre: Any) -> None:
    control = theatre.stack.control
    body = {"group": "sums", "group_size": 1, "task": {"task_id": "sum", "prompt": TASK}}
    registered = control("POST", "/weir/sessions", body)
    session = registered["session"]
    answers = theatre.play(FIRST, SECOND, FINAL, stopped_by=CODE_END)
    agent = code_agent(theatre.url(), Add(), api_key=registered["api_key"])

    assert agent.run(f"{TASK} (by key)") == 15
    reward = {"session": session, "name": "right", "value": 1.0, "source": "test", "idempotency_key": "sum"}
    assert control("POST", "/weir/rewards", reward)["added"]
    control("POST", f"/weir/sessions/{session}/finish")

    theatre.hold_line(session, answers)
    query = "SELECT DISTINCT session_source, group_id FROM calls WHERE session_id = ?"
    assert theatre.rows(query, session) == [("key", "sums")]
    query = "SELECT group_id, status, num_turns, reward FROM sessions WHERE session_id = ?"
    assert theatre.rows(query, session) == [("sums", "done", 3, 1.0)]
    query = "SELECT task_id, size, num_sessions, finished, num_calls FROM groups WHERE group_id = 'sums'"
    assert theatre.rows(query) == [("sum", 1, 1, True, 3)]
    assert registered["api_key"] not in str(theatre.column("SELECT agent_ids FROM calls"))


def test_two_sessions_of_a_group_start_from_one_prompt_and_stay_apart(theatre: Any) -> None:
    played = {}
    for session, texts in (("long", (FIRST, SECOND, FINAL)), ("short", (FIRST.replace("b=3", "b=13"), FINAL))):
        played[session] = theatre.play(*texts, stopped_by=CODE_END)
        assert code_agent(theatre.url(f"/g/pair/s/{session}/v1"), Add()).run(TASK) == 15

    for session, answers in played.items():
        theatre.hold_line(session, answers)
    query = "SELECT size, num_sessions, num_calls FROM groups WHERE group_id = 'pair'"
    assert theatre.rows(query) == [(None, 2, 5)]
    query = "SELECT session_id, num_calls FROM branches WHERE group_id = 'pair' ORDER BY session_id"
    assert theatre.rows(query) == [("long", 3), ("short", 2)]
    one, other = (theatre.calls(session)[0].prompt_ids.tolist() for session in ("long", "short"))
    assert one == other


def test_a_tool_calling_agent_is_given_the_calls_that_it_demands(theatre: Any) -> None:
    opening = '<tool_call>\n{"name": "'
    answers = theatre.play(
        'add", "arguments": {"a": 5, "b": 10}}\n</tool_call>',
        'final_answer", "arguments": {"answer": 15}}\n</tool_call>',
    )
    model = OpenAIModel("weir", api_base=theatre.url("/s/demanded/v1"), api_key="agent")
    add = Add()
    assert ToolCallingAgent(tools=[add], model=model, verbosity_level=0).run(TASK) == 15

    assert add.asked == [(5, 10)]
    theatre.hold_answers("demanded", answers)
    # What the model was made to begin with is prompt: no token of it counts as sampled.
    query = "SELECT forced_tokens FROM calls WHERE session_id = 'demanded'"
    num_forced = len(make_tokenizer(512).encode(opening, add_special_tokens=False))
    assert theatre.column(query) == [num_forced, num_forced]
    for body in theatre.engine.requests:
        assert make_tokenizer(512).decode(body["input_ids"]).endswith(f"<|im_start|>assistant\n{opening}")
    query = "SELECT tool_calls ->> '$[0].function.name' FROM calls WHERE session_id = 'demanded' ORDER BY started_us"
    assert theatre.column(query) == ["add", "final_answer"]


def test_a_tool_calling_agent_that_asks_for_auto_calls_tools_and_its_rewriting_is_told(theatre: Any) -> None:
    calls = ('{"name": "add", "arguments": {"a": 5, "b": 10}}', '{"name": "final_answer", "arguments": {"answer": 15}}')
    answers = theatre.play(*(f"<tool_call>\n{call}\n</tool_call>" for call in calls))
    model = OpenAIModel("weir", api_base=theatre.url("/s/auto/v1"), api_key="agent", tool_choice="auto")
    add = Add()
    assert ToolCallingAgent(tools=[add], model=model, verbosity_level=0).run(TASK) == 15

    assert add.asked == [(5, 10)]
    theatre.hold_answers("auto", answers)
    first, second = theatre.calls("auto")
    told = [message["content"][0]["text"] for message in second.messages[-2:]]
    assert told[0].startswith("Calling tools:\n[{") and told[1] == "Observation:\n15"
    query = "SELECT call_id, parent_call, stitch, stitch_call, stitch_differs_at FROM calls WHERE session_id = 'auto'"
    assert theatre.rows(f"{query} ORDER BY started_us") == [
        (first.call_id, None, "new_root", None, None),
        # The model's turn began with <tool_call>; the agent says that it began with "Calling tools:".
        (second.call_id, None, "history_rewritten", first.call_id, len(first.prompt_ids)),
    ]
