"""Agents as command lines under `weir run`: the loop of docs/agents.md, and well-known agents where they are installed.

WEIR_TEST_NPM_AGENTS names the folder whose node_modules has those from npm and a node that runs them; WEIR_TEST_AIDER
and WEIR_TEST_MINI_SWE_AGENT name virtual environments. `.ci/run` makes all of them. The agents run contained: no
traffic leaves the machine. The commands are those of docs/agents.md.
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
from collections.abc import Callable, Iterator
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


Ledger = list[tuple[list[int], list[int]]]  # prompt and output ids of each call that the engine answered


def plays(theatre: Any, answer: Callable[[str], str]) -> Ledger:
    """The engine answers each prompt with the text that `answer` gives for it, and its calls come into the ledger."""
    tokenizer, ledger = make_tokenizer(512), []

    def script(request: dict[str, Any]) -> Script:
        text = answer(tokenizer.decode(request["input_ids"], skip_special_tokens=False))
        ids = tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False)
        ledger.append((list(request["input_ids"]), ids))
        return Script(ids=ids)

    theatre.engine.requests.clear()
    theatre.engine.script = script
    return ledger


def answers_by_tool(theatre: Any, tool: str, arguments: dict[str, Any]) -> Ledger:
    """The engine calls a tool once in each conversation that offers it, and says "Done." in all other calls."""
    call = json.dumps({"name": tool, "arguments": arguments})

    def answer(prompt: str) -> str:
        calls = f'"name": "{tool}"' in prompt and "I write it." not in prompt
        return f"I write it.\n\n<tool_call>\n{call}\n</tool_call>" if calls else "Done."

    return plays(theatre, answer)


def hold_ledger(theatre: Any, session: str, ledger: Ledger) -> None:
    """Every call that the engine answered is recorded with its very ids, and no other."""
    recorded = [(call.prompt_ids.tolist(), call.output_ids.tolist()) for call in theatre.calls(session)]
    assert sorted(recorded) == sorted(ledger)


def check_session(theatre: Any, ran: subprocess.CompletedProcess[str], *, turns: int = 2) -> str:
    """The one session was rewarded, and so many of its calls continue each other exactly. Returns its id."""
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
    assert trained >= turns, shown
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


@pytest.fixture
def npm_agents(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the programs that npm installed; their own node comes before another."""
    folder = os.environ.get("WEIR_TEST_NPM_AGENTS", "")
    if not folder:
        pytest.skip("WEIR_TEST_NPM_AGENTS names no folder with node_modules")
    programs = Path(folder).absolute() / "node_modules" / ".bin"
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs


WRITE = {"command": "echo 15 > answer.txt", "description": "Write"}


@pytest.mark.parametrize(
    ("name", "program", "tool", "arguments"),
    [
        ("codex", "codex", "exec_command", {"cmd": "echo 15 > answer.txt"}),
        ("Claude Code", "claude", "Bash", WRITE),
        ("opencode", "opencode", "bash", WRITE),
        ("qwen-code", "qwen", "run_shell_command", {**WRITE, "is_background": False}),
    ],
)
def test_an_agent_from_npm(
    theatre: Any,
    tmp_path: Path,
    open_folder: Path,
    npm_agents: Path,
    name: str,
    program: str,
    tool: str,
    arguments: dict[str, Any],
) -> None:
    ledger = answers_by_tool(theatre, tool, arguments)
    command = documented_command(name).replace(f"{program} ", f"{npm_agents / program} ", 1)
    settings = {"command_environment": documented_environment(name), "command_folder": str(open_folder)}
    session = check_session(theatre, run_agent(theatre, tmp_path, command, **settings))
    hold_ledger(theatre, session, ledger)


def test_a_loop_over_the_ai_sdk(theatre: Any, tmp_path: Path, open_folder: Path, npm_agents: Path) -> None:
    source = re.search(r"### AI SDK\n.*?```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert source is not None
    loop = open_folder / "loop" / "loop.mjs"
    loop.parent.mkdir()
    loop.write_text(source[1])
    (loop.parent / "node_modules").symlink_to(npm_agents.parent)
    ledger = answers_by_tool(theatre, "run", {"command": "echo 15 > answer.txt; ls"})
    command = f"{npm_agents / 'node'} {loop} {{model}} {{prompt}}"
    session = check_session(theatre, run_agent(theatre, tmp_path, command, command_folder=str(open_folder)))
    hold_ledger(theatre, session, ledger)
    assert "answer.txt\n" in theatre.last_turn(session)


def test_aider(theatre: Any, tmp_path: Path, open_folder: Path) -> None:
    environment = os.environ.get("WEIR_TEST_AIDER", "")
    if not environment:
        pytest.skip("WEIR_TEST_AIDER names no environment with the agent")

    def answer(prompt: str) -> str:
        return f"I write it.\n\nanswer.txt\n```\n{15 if 'I write it.' in prompt else 14}\n```"

    ledger = plays(theatre, answer)
    command = documented_command("aider").replace("aider ", f"{Path(environment).absolute()}/bin/aider ", 1)
    command += " --auto-test --test-cmd 'grep 15 answer.txt'"
    session = check_session(theatre, run_agent(theatre, tmp_path, command, command_folder=str(open_folder)), turns=1)
    hold_ledger(theatre, session, ledger)
    assert len(ledger) == 2
