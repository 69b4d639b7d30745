"""`weir show` of a coding agent's session: a list of turns, with new messages, reasoning, tool calls and answers."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from weir.scripts.cli.commands import store
from weir.store.config import StoreConfig
from weir.store.records.call_record import Stitch

app = typer.Typer()
app.command("show")(store.show)
app.command("sessions")(store.sessions)

TOOLS = [{"type": "function", "function": {"name": "bash", "description": "Runs a command."}}]
SYSTEM = {"role": "system", "content": "You write code. " * 20}
TASK = {"role": "user", "content": "Fix the bug."}


def call_of(command: str) -> dict[str, Any]:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {"id": "x", "type": "function", "function": function}


def body(*messages: dict[str, Any]) -> bytes:
    return json.dumps({"model": "small", "messages": [SYSTEM, TASK, *messages], "tools": TOOLS}).encode()


@pytest.fixture
def agent(config: StoreConfig, record: Any, make_call: Any) -> list[str]:
    """Arguments that name the store of a session of two turns, a repeated last turn, and a rewritten history."""
    first = {"role": "assistant", "content": "", "reasoning_content": "Look\naround.", "tool_calls": [call_of("ls")]}
    result = {"role": "tool", "tool_call_id": "x", "content": "a.py\nb.py"}
    second = {"role": "assistant", "content": "Done."}
    record(
        [
            make_call("call_1", [1, 2, 3], [4, 5], at=1_000, request=body(), answer=json.dumps(first).encode()),
            make_call(
                *("call_2", [1, 2, 3, 4, 5, 6], [7]),
                at=2_000_000,
                versions=[(1, "4")],
                cached_tokens=5,
                held_us=2_500_000,
                request=body(first, result),
                answer=json.dumps(second).encode(),
            ),
            make_call("call_3", [1, 2, 3, 4, 5, 6], [8], at=5_000_000, retry_count=1, request=body(first, result)),
            make_call(
                *("call_4", [1, 2, 9], [8]),
                at=7_000_000,
                stitch=Stitch.COMPACTED,
                stitch_call="call_2",
                stitch_differs_at=2,
                request=body({"role": "user", "content": "So far: a.py"}),
            ),
        ]
    )
    return ["--root", str(config.root)]


def show(folder: Path, *words: str) -> str:
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, ["show", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_session_reads_from_top_to_bottom(tmp_path: Path, agent: list[str]) -> None:
    system = " ".join(str(SYSTEM["content"]).split())[:96]
    assert show(tmp_path, "s", *agent).splitlines() == [
        "s  group g  seen  4 calls",
        "├── root stop  3 (+3) → 2 tokens  v0  call_1",
        f"│   system {system}… (320 characters)",
        "│   user   Fix the bug.",
        "│   thinks Look around.",
        '│   calls  bash {"command": "ls"}',
        "│   ├── turn stop  6 (+1, 5 cached) → 1 tokens  v4  held 2.5 s  call_2",
        "│   │   tool   a.py b.py",
        "│   │   says   Done.",
        "│   └── retry stop  6 (+1) → 1 tokens  v0  retry of call_2 (same_prompt)  tried 2 times  call_3",
        "│       tool   a.py b.py",
        "│       says   answer of call_3",
        "└── root stop  3 (+3) → 1 tokens  v0  compaction of call_2 (stitched_as_compacted)  compacted, differs at 2"
        "  call_4",
        f"    system {system}… (320 characters)",
        "    user   Fix the bug.",
        "    user   So far: a.py",
        "    says   answer of call_4",
    ]


def test_a_call_is_shown_whole_with_its_tokens(tmp_path: Path, agent: list[str]) -> None:
    shown = show(tmp_path, "--call", "call_1", "--tokens", *agent)
    assert str(SYSTEM["content"]).strip() in shown
    assert "thinks Look\n       around." in shown
    assert "tool              bash  Runs a command." in shown
    assert [line.split() for line in shown.splitlines()[-2:]] == [
        ["0", "4", "-0.5000", "v0"],
        ["1", "5", "-1.0000", "v0"],
    ]


def test_a_long_conversation_is_a_list_and_not_a_staircase(
    tmp_path: Path, config: StoreConfig, record: Any, make_call: Any
) -> None:
    ids = [1]
    calls = []
    for turn in range(1000):
        calls.append(make_call(f"call_{turn:04}", list(ids), [2], at=turn * 20_000))
        ids += [2, 3]
    record(calls)
    lines = show(tmp_path, "s", "--root", str(config.root)).splitlines()
    assert max(len(line) - len(line.lstrip("│├└─ ")) for line in lines) == 8
    assert [line.split()[-1] for line in lines if "tokens" in line] == [call.call_id for call in calls]


def test_other_dialects_read_alike(tmp_path: Path, config: StoreConfig, record: Any, make_call: Any) -> None:
    anthropic = {
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "name": "bash", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "ok"}]}]},
        ],
    }
    responses = {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "function_call", "name": "bash", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "output": "ok"},
        ],
    }
    for name, request in (("one", anthropic), ("two", responses)):
        record([make_call(name, [1], [2], session_id=name, request=json.dumps(request).encode())], writer=name)
        shown = show(tmp_path, "--call", name, "--root", str(config.root))
        told = shown.partition("request\n")[2].partition("\n\n")[0].splitlines()
        assert told == ["system Be brief.", "user   Hi", 'calls  bash {"a": 1}', "tool   ok"]
