"""`weir run --agent-command` as a process: real agents' processes, a real proxy, the embedded engine, hidden tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support_servers import start_engine
from support_stack import Stack, running_stack

from weir.store.catalog.catalog import Catalog
from weir.store.reader import connect
from weir.trainer.rounds.group_selection import choose_groups
from weir.trainer.settings.config import TrainerConfig

EXAMPLES = Path(__file__).parents[2] / "agents" / "examples" / "swe"
AGENT = Path(__file__).with_name("scripted_agent.py")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("command")
    engine = start_engine(tiny_model_dir, folder=folder)
    try:
        with running_stack(folder, model=tiny_model_dir, engine_urls=[engine.url]) as running:
            yield running
    finally:
        engine.stop()


def weir_run(stack: Stack, command: str, *arguments: str, tasks: Path = EXAMPLES) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}
    own = Path(sys.executable).parent
    return subprocess.run(
        [
            *(sys.executable, "-m", "weir.scripts.cli.main", "run", "--config", str(stack.folder / "weir.toml")),
            *("--tasks", str(tasks), "--samples", "1", "--agent-command", command, *arguments),
        ],
        env={
            **environment,
            "PATH": f"{own}:{environment['PATH']}",
            "WEIR_AGENTS__COMMAND_READABLE": f'["{AGENT.parent}"]',
        },
        capture_output=True,
        text=True,
        timeout=240,
    )


def sessions(stack: Stack, agent: str) -> dict[str, tuple[Any, ...]]:
    """Status, number of calls, reward, exit code and sandbox by task, of the sessions with this agent."""
    with connect(stack.settings.store) as db:
        rows = db.execute(
            "SELECT task_id, status, s.num_calls, reward, info ->> '$.exit_code', info ->> '$.sandbox', "
            "info ->> '$.output' FROM sessions s JOIN groups USING (group_id) WHERE s.metadata ->> '$.agent' = ?",
            [agent],
        ).fetchall()
    return {task: tuple(rest) for task, *rest in rows}


def test_tasks_with_hidden_tests_reward_what_the_agent_did(stack: Stack) -> None:
    command = f"python3 {AGENT} good {{prompt}}"
    ran = weir_run(stack, command)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith("3 groups, 3 sessions in ")
    assert "reward tests: mean 0.722 of 3" in ran.stdout and ran.stdout.rstrip().endswith("failed: none"), ran.stdout
    assert "to train on one, set [trainer.rewards] tests = { stored = true }" in ran.stderr

    found = sessions(stack, command)
    assert {task: row[:3] for task, row in found.items()} == {
        "average": ("done", 1, 1.0),
        "duration": ("done", 1, 1.0),
        "tokens": ("done", 1, pytest.approx(1 / 6)),  # the agent left it as it was
    }
    for *_, exit_code, level, output in found.values():
        assert exit_code == "0" and level in ("bubblewrap", "landlock", "rlimits")
        assert Path(output).read_text().startswith("the model said ")
        assert not (Path(output).parent / "work").exists()  # command_keep = "output"

    config = TrainerConfig.model_validate({"rewards": {"tests": {"stored": True}}, "groups_per_round": 8})
    chosen = choose_groups(Catalog.open(stack.settings.store), stack.settings.store, config, parent=0).groups
    assert sorted(value for group in chosen for value in group.rewards["tests"].values()) == [
        pytest.approx(1 / 6),
        1.0,
        1.0,
    ]


def test_an_agent_that_rewrites_the_tests_and_plants_a_conftest_gains_nothing(stack: Stack) -> None:
    command = f"python3 {AGENT} cheating {{prompt}}"
    ran = weir_run(stack, command)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rewards = {task: row[2] for task, row in sessions(stack, command).items()}
    assert rewards == {"average": pytest.approx(0.0), "duration": 0.0, "tokens": pytest.approx(1 / 6)}


def test_an_agent_that_never_calls_is_a_failure_and_no_reward(stack: Stack) -> None:
    ran = weir_run(stack, "python3 -c 'print(\"I found no key\")'", "--limit", "1")
    assert ran.returncode == 1
    assert "made no call (exit code 0)" in ran.stderr and "I found no key" in ran.stderr
    assert "tests: mean" not in ran.stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-program --task {prompt}", "there is no program 'no-such-program' on PATH"),
        ("python3 {promt}", "{promt} in the agent's command is no placeholder; there are prompt, prompt_file"),
        ("python3 'open", "cannot be split into words"),
    ],
)
def test_a_command_that_cannot_start_is_refused_before_any_session(stack: Stack, command: str, message: str) -> None:
    ran = weir_run(stack, command)
    assert ran.returncode == 2 and message in ran.stderr, ran.stderr
    assert not sessions(stack, command)
