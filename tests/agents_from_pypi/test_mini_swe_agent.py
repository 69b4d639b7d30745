"""mini-swe-agent's own command, configured with nothing but base_url and api_key in OpenAI's variables.

It is not among Weir's test dependencies: WEIR_TEST_MINI_SWE_AGENT names a virtual environment that has it, made by
`python -m venv v && v/bin/pip install mini-swe-agent mcp`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ENVIRONMENT = os.environ.get("WEIR_TEST_MINI_SWE_AGENT", "")
QUIET = {
    "MSWEA_CONFIGURED": "true",  # no questions at the first start
    "MSWEA_SILENT_STARTUP": "1",
    "MSWEA_COST_TRACKING": "ignore_errors",  # nobody sells this model
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
STEPS = {
    "I write a file.": "echo 15 > answer.txt",
    "I look at it.": "cat answer.txt",
    "I am done.": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
}

pytestmark = pytest.mark.skipif(not ENVIRONMENT, reason="WEIR_TEST_MINI_SWE_AGENT names no environment with the agent")


def run_agent(folder: Path, base_url: str, api_key: str) -> dict[str, Any]:
    """Run one session of `mini` in `folder`; returns the info in its trajectory file."""
    trajectory = folder / "trajectory.json"
    command = [Path(ENVIRONMENT).absolute() / "bin" / "mini", "--task", "Write 15 to answer.txt.", "--yolo"]
    settings = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": api_key, "MSWEA_GLOBAL_CONFIG_DIR": str(folder)}
    done = subprocess.run(
        [*command, "--model", "openai/weir", "--exit-immediately", "--output", trajectory],
        cwd=folder,
        env=os.environ | QUIET | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(trajectory.read_text())["info"]
    return told


def test_a_session_of_mini_swe_agent_is_one_line_of_exact_turns(theatre: Any, tmp_path: Path) -> None:
    calls = [json.dumps({"name": "bash", "arguments": {"command": command}}) for command in STEPS.values()]
    answers = theatre.play(
        *(f"{thought}\n\n<tool_call>\n{call}\n</tool_call>" for thought, call in zip(STEPS, calls, strict=True))
    )
    registered = theatre.stack.control("POST", "/weir/sessions", {"group": "swe"})
    told = run_agent(tmp_path, theatre.url(), registered["api_key"])

    assert (told["exit_status"], told["model_stats"]["api_calls"]) == ("Submitted", 3)
    assert (tmp_path / "answer.txt").read_text() == "15\n"
    session = registered["session"]
    theatre.hold_line(session, answers)
    assert '"output": "15\\n"' in theatre.last_turn(session)
    query = "SELECT text, tool_calls ->> '$[0].function.arguments' FROM calls WHERE session_id = ? ORDER BY depth"
    found = [(text, json.loads(arguments)["command"]) for text, arguments in theatre.rows(query, session)]
    assert found == list(STEPS.items())
