"""`weir run --continuous` and `weir eval` as processes over a real proxy and engine: pressure, kill -9, evaluations."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support_servers import start_engine
from support_stack import Stack, running_stack

from weir.agents.agent_task import load_all_tasks
from weir.agents.runner import sample_tasks
from weir.scripts.cli.report.html import write_report
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import ROUNDS, take_lease
from weir.store.catalog.ready_groups import ready_groups
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
    more = "\n[trainer]\ngroups_per_round = 3\nmax_staleness = 1\n\n[trainer.rewards]\nlength = { stored = true }\n"
    engine = start_engine(tiny_model_dir, folder=folder)
    try:
        with running_stack(folder, model=tiny_model_dir, engine_urls=[engine.url], proxy_settings=more) as running:
            yield running
    finally:
        engine.stop()


def weir(stack: Stack, command: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "weir.scripts.cli.main", command, "--config", str(stack.folder / "weir.toml")),
            *("--tasks", "tasks.jsonl", "--agent", "lengthy:solve", *arguments),
        ],
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
WHOLE = "SELECT task_id FROM groups WHERE finished ORDER BY task_id"


def test_groups_come_until_the_trainer_has_what_it_can_use_and_resume_after_a_kill(stack: Stack) -> None:
    options = ("--continuous", "--samples", "2", "--seed", "3", "--limit", "9")
    running = weir(stack, "run", *options)
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
    deadline = time.monotonic() + 120
    while rows(stack, READY) != [(6,)] and time.monotonic() < deadline:
        assert running.poll() is None
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert rows(stack, READY) == [(6,)]  # and it never started a seventh

    order = [task.task_id for _, task in zip(range(9), sample_tasks(train_tasks(stack), 3), strict=False)]
    assert [task for (task,) in rows(stack, WHOLE)] == sorted(order[:6])

    claim_all(stack)
    out, errors = weir(stack, "run", *options).communicate(timeout=240)
    assert "resumed: 6 groups have ended; 0 were running" in errors, errors
    assert out.startswith("3 groups, 6 sessions"), out
    assert [task for (task,) in rows(stack, WHOLE)] == sorted(order)


def train_tasks(stack: Stack) -> list[Any]:
    return [task for task in load_all_tasks(stack.folder / "tasks.jsonl") if task.split == "train"]


def claim_all(stack: Stack) -> None:
    """Consume all ready groups, as a round of a trainer would."""
    catalog = Catalog.open(stack.settings.store)
    groups = [group.group_id for group in ready_groups(catalog)]
    lease = take_lease(catalog, ROUNDS, "test", 60.0)
    catalog.claim_groups(1, groups, {}, lease)
    catalog.commit_round(1, 1, {}, lease)
    catalog.close()


def test_heldout_tasks_were_evaluated_once_at_the_version_and_no_round_may_train_on_them(stack: Stack) -> None:
    query = """SELECT count(*), count(DISTINCT group_id), any_value(metadata ->> '$.seed'), min(version_max)
               FROM sessions WHERE metadata ->> '$.evaluation' = 'heldout'"""
    assert rows(stack, query) == [(2, 2, "0", 0)]
    assert rows(stack, "SELECT DISTINCT size FROM groups WHERE task_id LIKE 'held%'") == [(None,)]


def test_weir_eval_stores_rewards_and_the_report_has_their_curve(stack: Stack, tmp_path: Path) -> None:
    process = weir(stack, "eval", "--name", "final", "--samples", "3", "--seeds", "0,5", "--json")
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    told = json.loads(out)
    assert (told["evaluation"], told["version"], told["failed"]) == ("final", "0", 0)
    query = """SELECT avg(value), count(*), count(DISTINCT metadata ->> '$.seed')
               FROM sessions JOIN rewards USING (session_id)
               WHERE metadata ->> '$.evaluation' = 'final' AND name = 'length'"""
    ((mean, count, seeds),) = rows(stack, query)
    assert (count, seeds) == (12, 2)
    assert told["rewards"]["length"]["mean"] == pytest.approx(mean) and told["rewards"]["length"]["sessions"] == 12
    page = write_report(stack.settings.store, tmp_path / "report.html").read_text()
    assert "Held-out reward by weight version" in page and "final: length" in page


def test_weir_eval_refuses_a_version_that_is_not_served(stack: Stack) -> None:
    process = weir(stack, "eval", "--version", "12")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "--version 12: version 0 is served; `weir rollback 12`" in errors
