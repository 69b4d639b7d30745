"""Agents as command lines under `weir run`: the loop of docs/agents.md, and well-known agents where they are installed.

Each environment variable names a program: WEIR_TEST_CODEX (`npm install @openai/codex`, node_modules/.bin/codex),
WEIR_TEST_CLAUDE (`@anthropic-ai/claude-code`), WEIR_TEST_OPENCODE (`opencode-ai`); WEIR_TEST_MINI_SWE_AGENT names a
virtual environment. They run contained: no traffic leaves the machine. The commands are those of docs/agents.md.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support_model import make_tokenizer
from support_scripted_engine import Script

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
TASK = """
prompt = "Write 15 to answer.txt."
[hidden]
"expected.txt" = "15\\n"
[rewards.tests]
command = "cmp answer.txt expected.txt"
"""


def documented_command(name: str) -> str:
    """The command line that docs/agents.md gives for an agent, without `weir run`."""
    section = PAGE.read_text().split(f"### {name}\n", 1)[1]
    block = re.search(r"```\nweir run [^`]*?--agent-command (.*?)\n```", section, re.DOTALL)
    assert block is not None, name
    (command,) = shlex.split(block[1])
    return command


def documented_environment(name: str) -> str:
    """The variables that docs/agents.md sets for an agent, as JSON."""
    section = PAGE.read_text().split(f"### {name}\n", 1)[1].split("\n### ")[0]
    block = re.search(r"```toml\n(.*?)```", section, re.DOTALL)
    return json.dumps(tomllib.loads(block[1])["agents"]["command_environment"] if block is not None else {})


def run_agent(theatre: Any, folder: Path, command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    (folder / "tasks").mkdir()
    (folder / "tasks" / "fifteen.toml").write_text(TASK)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}
    return subprocess.run(
        [
            *(sys.executable, "-m", "weir.scripts.cli.main", "run"),
            *("--config", str(theatre.stack.folder / "weir.toml"), "--tasks", str(folder / "tasks"), "--samples", "1"),
            *("--agent-command", command),
        ],
        env=environment
        | {"WEIR_AGENTS__COMMAND_TIMEOUT_S": "240", "WEIR_AGENTS__COMMAND_KEEP": "all"}
        | {f"WEIR_AGENTS__{name.upper()}": value for name, value in settings.items()},
        capture_output=True,
        text=True,
        timeout=300,
    )


def answers_by_tool(theatre: Any, tool: str, arguments: dict[str, Any]) -> None:
    """The engine calls a tool once in each conversation that offers it, and says "Done." in all other calls."""
    tokenizer = make_tokenizer(512)
    call = json.dumps({"name": tool, "arguments": arguments})
    texts = {True: f"I write it.\n\n<tool_call>\n{call}\n</tool_call><|im_end|>", False: "Done.<|im_end|>"}
    ids = {kind: tokenizer.encode(text, add_special_tokens=False) for kind, text in texts.items()}

    def script(request: dict[str, Any]) -> Script:
        prompt = tokenizer.decode(request["input_ids"], skip_special_tokens=False)
        offered = f'"name": "{tool}"' in prompt
        return Script(ids=ids[offered and "I write it." not in prompt])

    theatre.engine.requests.clear()
    theatre.engine.script = script


def check_session(theatre: Any, ran: subprocess.CompletedProcess[str]) -> str:
    """The one session was rewarded, and its calls continue each other exactly. Returns its id."""
    assert ran.returncode == 0, ran.stdout + ran.stderr
    output = theatre.rows(
        "SELECT session_id, info ->> '$.output', reward FROM sessions ORDER BY created_at DESC LIMIT 1"
    )
    session, file, reward = output[0]
    shown = Path(file).read_text()[-3000:]
    assert reward == 1.0, ran.stdout + ran.stderr + shown
    (trained,) = theatre.column(
        "SELECT max(len(call_ids)) FROM branches WHERE session_id = ? GROUP BY session_id", session
    )
    assert trained >= 2, shown
    return str(session)


def test_the_loop_of_the_page_runs_as_it_stands(theatre: Any, tmp_path: Path) -> None:
    source = re.search(r"````python\n(\"\"\"An agent in thirty lines.*?)\n````\n", PAGE.read_text(), re.DOTALL)
    assert source is not None
    loop = tmp_path / "agent" / "loop.py"
    loop.parent.mkdir()
    loop.write_text(source[1])
    answers = theatre.play("I write it.\n```sh\necho 15 > answer.txt; ls\n```", "It is done.")
    command = f"{sys.executable} {loop} {{model}} {{prompt}}"
    ran = run_agent(theatre, tmp_path, command)
    session = check_session(theatre, ran)
    theatre.hold_line(session, answers)
    assert "exit code 0\nanswer.txt" in theatre.last_turn(session)


def test_mini_swe_agent(theatre: Any, tmp_path: Path) -> None:
    environment = os.environ.get("WEIR_TEST_MINI_SWE_AGENT", "")
    if not environment:
        pytest.skip("WEIR_TEST_MINI_SWE_AGENT names no environment with the agent")
    steps = ("echo 15 > answer.txt", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    calls = [json.dumps({"name": "bash", "arguments": {"command": step}}) for step in steps]
    answers = theatre.play(*(f"So.\n\n<tool_call>\n{call}\n</tool_call>" for call in calls))
    command = documented_command("mini-swe-agent").replace("mini ", f"{Path(environment).absolute()}/bin/mini ", 1)
    quiet = {"MSWEA_CONFIGURED": "true", "MSWEA_SILENT_STARTUP": "1", "MSWEA_COST_TRACKING": "ignore_errors"}
    ran = run_agent(theatre, tmp_path, command, command_environment=json.dumps(quiet))
    theatre.hold_line(check_session(theatre, ran), answers)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize(
    ("name", "variable", "program", "tool", "arguments"),
    [
        ("codex", "WEIR_TEST_CODEX", "codex", "exec_command", {"cmd": "echo 15 > answer.txt"}),
        (
            "Claude Code",
            "WEIR_TEST_CLAUDE",
            "claude",
            "Bash",
            {"command": "echo 15 > answer.txt", "description": "Write"},
        ),
        (
            "opencode",
            "WEIR_TEST_OPENCODE",
            "opencode",
            "bash",
            {"command": "echo 15 > answer.txt", "description": "Write"},
        ),
    ],
)
def test_an_agent_from_npm(
    theatre: Any,
    tmp_path: Path,
    open_folder: Path,
    name: str,
    variable: str,
    program: str,
    tool: str,
    arguments: dict[str, Any],
) -> None:
    installed = os.environ.get(variable, "")
    if not installed:
        pytest.skip(f"{variable} names no program")
    answers_by_tool(theatre, tool, arguments)
    command = documented_command(name).replace(f"{program} ", f"{Path(installed).absolute()} ", 1)
    settings = {"command_environment": documented_environment(name), "command_folder": str(open_folder)}
    check_session(theatre, run_agent(theatre, tmp_path, command, **settings))
