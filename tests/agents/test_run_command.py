"""`weir run` as a process, against stubs of the proxy and the judge: what it prints and how it exits."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from weir.agents.family import family_tasks
from weir.agents.tasks import write_tasks

KEY = "control-key-for-tests"


async def start_run(stubs: Any, folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    host, port = stubs.proxy.url.removeprefix("http://").split(":")
    (folder / "weir.toml").write_text(
        f'[proxy]\nhost = "{host}"\nport = {port}\ncontrol_key = "{KEY}"\n'
        f'[kernel_eval]\nurl = "{stubs.config.kernel_eval_url}"\n'
        "[agents]\nsamples = 2\nturns = 2\ncontrol_retries = 0\ncall_retries = 0\n"
    )
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "weir.scripts.cli.main", "run", "--config", str(folder / "weir.toml"), *arguments),
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("WEIR_")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def weir_run(stubs: Any, folder: Path, *arguments: str) -> tuple[int, str, str]:
    process = await start_run(stubs, folder, *arguments)
    out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


def test_it_runs_each_train_task_once_and_tells_what_happened(stubs: Any, tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl", [*family_tasks("train")[:3], *family_tasks("heldout")[:1]])

    async def scenario() -> None:
        async with stubs() as s:
            s.proxy.answer_to = lambda messages: "right"
            status, out, errors = await weir_run(s, tmp_path, "--tasks", "tasks.jsonl", "--samples", "4")
            assert status == 0, errors
            assert out.startswith("3 groups, 12 sessions, 12 calls in ")
            assert out.rstrip().endswith("12 sessions saw a correct answer; failed: none")
            assert errors == "12/12 sessions, 0 failed\n"
            assert {body["group_size"] for body in s.proxy.sessions.values()} == {4}
            assert {call["model"] for call in s.proxy.calls} == {"weir"}
            assert len(s.proxy.finished) == 12

    asyncio.run(scenario())


def test_it_fails_when_every_session_failed_and_says_why(stubs: Any, tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl", family_tasks("train")[:1])

    async def scenario() -> None:
        async with stubs() as s:
            s.proxy.refuse_next = [403, 403]
            status, out, errors = await weir_run(s, tmp_path, "--tasks", "tasks.jsonl")
            assert status == 1
            assert "failed: 2 ProxyRefused" in out
            assert "weir: every session failed; the first: the proxy refused /weir/sessions: HTTP 403" in errors

    asyncio.run(scenario())


def test_it_goes_on_when_some_sessions_failed_and_tells_the_first_failure(stubs: Any, tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl", family_tasks("train")[:1])

    async def scenario() -> None:
        async with stubs() as s:
            s.proxy.answer_to = lambda messages: "right"
            s.proxy.refuse_next = [403]
            status, out, errors = await weir_run(s, tmp_path, "--tasks", "tasks.jsonl")
            assert status == 0, errors
            assert "failed: 1 ProxyRefused" in out
            assert errors.splitlines()[-1].startswith("the first failure: the proxy refused /weir/sessions: HTTP 403")

    asyncio.run(scenario())


def test_a_split_without_tasks_is_refused_before_anything_runs(stubs: Any, tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl", family_tasks("train")[:1])

    async def scenario() -> None:
        async with stubs() as s:
            status, _, errors = await weir_run(s, tmp_path, "--tasks", "tasks.jsonl", "--split", "heldout")
            assert status == 2
            assert "weir: no task of the split heldout in tasks.jsonl" in errors
            assert not s.proxy.sessions

    asyncio.run(scenario())


def test_sigterm_finishes_the_sessions_that_run_as_failed(stubs: Any, tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl", family_tasks("train")[:1])

    async def scenario() -> None:
        async with stubs() as s:
            s.proxy.held = asyncio.Event()
            process = await start_run(s, tmp_path, "--tasks", "tasks.jsonl")
            while len(s.proxy.calls) < 2:
                await asyncio.sleep(0.01)
                assert process.returncode is None
            process.terminate()
            _, errors = await process.communicate()
            s.proxy.held.set()
            assert process.returncode == 143
            assert errors.decode() == "stopped by SIGTERM; the sessions that ran are finished as failed\n"
            ends = [(body["status"], body["info"]["failure"]) for body in s.proxy.finished.values()]
            assert ends == [("failed", "Cancelled")] * 2

    asyncio.run(scenario())
