"""`weir run --continuous` and `weir eval` as processes over a real proxy and engine: pressure, kill -9, evaluations."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support_servers import start_engine
from support_stack import Stack, running_stack

from weir.agents.agent_task import load_all_tasks
from weir.agents.runner import sample_tasks
from weir.scripts.cli.report.html import write_report
from weir.store.reader import connect

AGENT = """
import asyncio, os
from openai import AsyncOpenAI

async def solve(task, base_url, api_key, config):
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        messages = [{"role": "user", "content": task.prompt}]
        answer = await client.chat.completions.create(model=config.model, messages=messages, max_tokens=4)
    return {"turns": 1, "rewards": {"length": len(answer.choices[0].message.content or "") / 100}}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("continuous")
    (folder / "lengthy.py").write_text(AGENT)
    lines = [{"task_id": f"task_{n}", "prompt": f"Say {n}.", "rewards": {}} for n in range(4)]
    lines += [{"task_id": f"held_{n}", "prompt": f"Hold {n}.", "rewards": {}, "split": "heldout"} for n in range(2)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    engine = start_engine(tiny_model_dir, folder=folder)
    more = (
        f'\n[trainer]\nengine_urls = ["{engine.url}"]\ndevice = "cpu"\ntensorboard = false\n'
        "groups_per_round = 3\nmax_staleness = 1\n\n[trainer.rewards]\nlength = { stored = true }\n"
    )
    try:
        with running_stack(folder, model=tiny_model_dir, engine_urls=[engine.url], proxy_settings=more) as running:
            yield running
    finally:
        engine.stop()


def weir(stack: Stack, command: str, *arguments: str) -> subprocess.Popen[str]:
    """A command over the stack's weir.toml."""
    return subprocess.Popen(
        [*(sys.executable, "-m", "weir.scripts.cli.main", command, *arguments), "--config", "weir.toml"],
        cwd=stack.folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("WEIR_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows(stack: Stack, query: str) -> list[tuple[Any, ...]]:
    with connect(stack.settings.store) as db:
        return db.execute(query).fetchall()


READY = "SELECT count(*) FROM groups WHERE finished AND round_id IS NULL"
FINISHED = "SELECT task_id FROM groups WHERE finished ORDER BY task_id"
AGENT_OF_TASKS = ("--tasks", "tasks.jsonl", "--agent", "lengthy:solve")
CONTINUOUS = (*AGENT_OF_TASKS, "--continuous", "--samples", "2", "--seed", "3", "--limit", "9")


@pytest.fixture(scope="module")
def resumed(stack: Stack) -> str:
    """The stderr of a continuous run that resumed: one before it was killed, and a round has trained meanwhile."""
    running = weir(stack, "run", *CONTINUOUS)
    assert running.stderr is not None
    expected = {
        "waiting for the trainer: 6 groups run or are ready, and it can use 6",  # 3 a round, a staleness of 1
        "version 0, heldout: length",
    }
    seen: list[str] = []
    for line in running.stderr:
        seen.append(line)
        expected = {start for start in expected if not line.startswith(start)}
        if not expected:
            break
    assert not expected, "".join(seen)
    while rows(stack, READY) != [(6,)]:
        assert running.poll() is None
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert rows(stack, READY) == [(6,)]  # and it never started a seventh
    assert [task for (task,) in rows(stack, FINISHED)] == sorted(order_of_tasks(stack)[:6])

    out, errors = weir(stack, "round").communicate(timeout=300)
    assert "round 1 → version 1" in out and "is served by http" in out, out + errors
    assert rows(stack, READY) == [(3,)]

    out, errors = weir(stack, "run", *CONTINUOUS).communicate(timeout=300)
    assert out.startswith("3 groups, 6 sessions"), out + errors
    return errors


def order_of_tasks(stack: Stack) -> list[str]:
    """The tasks at the nine positions of the run."""
    train = [task for task in load_all_tasks(stack.folder / "tasks.jsonl") if task.split == "train"]
    return [task.task_id for _, task in zip(range(9), sample_tasks(train, 3), strict=False)]


def test_a_killed_run_resumes_at_the_groups_that_had_not_ended(stack: Stack, resumed: str) -> None:
    assert "resumed: 6 groups have ended; 0 were running" in resumed
    assert [task for (task,) in rows(stack, FINISHED)] == sorted(order_of_tasks(stack))
    assert rows(stack, READY) == [(6,)]


def test_each_version_is_evaluated_once_on_the_heldout_tasks_and_no_round_may_train_on_them(
    stack: Stack, resumed: str
) -> None:
    assert "version 1, heldout: length" in resumed and "version 0, heldout" not in resumed
    query = """SELECT version_max, count(*), count(DISTINCT group_id), any_value(metadata ->> '$.seed')
               FROM sessions WHERE metadata ->> '$.evaluation' = 'heldout' GROUP BY ALL ORDER BY ALL"""
    assert rows(stack, query) == [(0, 2, 2, "0"), (1, 2, 2, "0")]
    assert rows(stack, "SELECT DISTINCT size FROM groups WHERE task_id LIKE 'held%'") == [(None,)]


@pytest.mark.usefixtures("resumed")
def test_weir_eval_stores_rewards_and_the_report_has_their_curve(stack: Stack, tmp_path: Path) -> None:
    process = weir(stack, "eval", *AGENT_OF_TASKS, "--name", "final", "--samples", "3", "--seeds", "0,5", "--json")
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    told = json.loads(out)
    assert (told["evaluation"], told["version"], told["failed"]) == ("final", "1", 0)
    query = """SELECT avg(value), count(*), count(DISTINCT metadata ->> '$.seed')
               FROM sessions JOIN rewards USING (session_id)
               WHERE metadata ->> '$.evaluation' = 'final' AND name = 'length'"""
    ((mean, count, seeds),) = rows(stack, query)
    assert (count, seeds) == (12, 2)
    assert told["rewards"]["length"]["mean"] == pytest.approx(mean) and told["rewards"]["length"]["sessions"] == 12
    page = write_report(stack.settings.store, tmp_path / "report.html").read_text()
    curve = page.split("Held-out reward by weight version", 1)[1].split("<h2", 1)[0]
    points = {(int(version), float(value)) for version, value in re.findall(r"weight version (\d+): ([\d.]+)", curve)}

    def is_drawn(version: int, value: float) -> bool:  # a tie of the last digit may be rounded either way
        return any(at == version and abs(drawn - value) < 0.001 for at, drawn in points)

    assert "final: length" in curve and is_drawn(1, mean)
    query = """SELECT version_max, avg(value) FROM sessions JOIN rewards USING (session_id)
               WHERE metadata ->> '$.evaluation' = 'heldout' GROUP BY ALL ORDER BY ALL"""
    found = rows(stack, query)
    assert [version for version, _ in found] == [0, 1]
    assert all(is_drawn(version, value) for version, value in found)


@pytest.mark.usefixtures("resumed")
def test_weir_eval_refuses_a_version_that_is_not_served(stack: Stack) -> None:
    process = weir(stack, "eval", *AGENT_OF_TASKS, "--version", "12")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "--version 12: version 1 is served; `weir rollback 12`" in errors
