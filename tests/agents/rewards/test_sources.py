"""Rewards of sessions: JUnit, functions, and models over real sockets; what is no reward raises."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from weir.agents.agent_task import AgentTask, RewardSpec, load_all_tasks
from weir.agents.errors import RewardFailed, TaskError
from weir.agents.rewards.function import function_reward
from weir.agents.rewards.judge_model import filled, judge_reward, parsed
from weir.agents.rewards.junit import passed_share
from weir.agents.rewards.reward_model import http_reward

REPORT = b"""<testsuites><testsuite tests="4">
<testcase name="a"/><testcase name="b"><system-out>x</system-out></testcase>
<testcase name="c"><failure message="no"/></testcase><testcase name="d"><skipped/></testcase>
</testsuite></testsuites>"""
TASK = AgentTask(task_id="t", prompt="Say it.")


@pytest.mark.parametrize(
    ("report", "num_tests", "share"),
    [(REPORT, None, 0.5), (REPORT, 8, 0.25), (REPORT, 2, 0.5), (b"<testsuites/>", None, 0.0), (b"<testsuites/>", 3, 0)],
)
def test_junit_is_the_share_of_passed_tests(report: bytes, num_tests: int | None, share: float) -> None:
    assert passed_share(report, num_tests) == share


@pytest.mark.parametrize("report", [b"", b"passed", b'<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>'])
def test_what_is_no_report_is_refused(report: bytes) -> None:
    with pytest.raises(ValueError):
        passed_share(report, None)


def good(result: Any) -> float:
    return len(result) / 4


async def later(result: Any) -> int:
    await asyncio.sleep(0)
    return 2


def infinite(result: Any) -> float:
    return math.inf


def test_a_function_may_be_async_and_must_give_a_finite_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for function, value in ((good, 0.75), (later, 2.0)):
        monkeypatch.setattr("weir.agents.rewards.junit.reward", function, raising=False)
        assert asyncio.run(function_reward("f", "weir.agents.rewards.junit:reward", "abc", 5)) == value
    monkeypatch.setattr("weir.agents.rewards.junit.reward", infinite, raising=False)
    with pytest.raises(RewardFailed, match="a reward is a finite number"):
        asyncio.run(function_reward("f", "weir.agents.rewards.junit:reward", "abc", 5))
    with pytest.raises(RewardFailed, match="raised ModuleNotFoundError"):
        asyncio.run(function_reward("f", "no_such_module:reward", "abc", 5))


def served(answer: Callable[[dict[str, Any]], Any], ask: Callable[[str], Any]) -> tuple[Any, list[dict[str, Any]]]:
    """The result of `ask(url)` against a server whose JSON answers are `answer(body)`, and the bodies it got."""
    bodies: list[dict[str, Any]] = []

    async def handle(request: web.Request) -> web.Response:
        bodies.append({"key": request.headers.get("authorization"), **await request.json()})
        return web.json_response(answer(bodies[-1]))

    async def scenario() -> Any:
        app = web.Application()
        app.router.add_post("/{path:.*}", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            return await ask(f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()

    return asyncio.run(scenario()), bodies


def test_a_reward_model_gets_the_trainers_form() -> None:
    spec = {"url": ""}
    reward, bodies = served(
        lambda body: {"rewards": [len(body["items"][0]["answer"])]},
        lambda url: http_reward("style", RewardSpec(**spec | {"url": url}), TASK, "session_1", "four", "k"),
    )
    item = {"session_id": "session_1", "task_id": "t", "answer": "four"}
    item |= {"messages": [{"role": "user", "content": "Say it."}]}
    assert (reward, bodies) == (4.0, [{"key": "Bearer k", "name": "style", "items": [item]}])
    with pytest.raises(RewardFailed, match="expected"):
        served(
            lambda body: {"rewards": [None]},
            lambda url: http_reward("style", RewardSpec(url=url), TASK, "s", "a", None),
        )


def test_a_judge_model_gets_the_filled_template_and_its_last_number_counts() -> None:
    spec = RewardSpec(judge_url="x", judge_template="Task: {prompt} Answer: {answer}", judge_pattern=r"score: (\d+)")

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        return {"choices": [{"message": {"content": "At first score: 2, now score: 7."}}]}

    reward, (body,) = served(
        answer,
        lambda url: judge_reward("j", msgspec.structs.replace(spec, judge_url=f"{url}/v1/"), "p", "{prompt}", None),
    )
    assert reward == 7.0
    assert body["messages"] == [{"role": "user", "content": "Task: p Answer: {prompt}"}]
    assert body["temperature"] == 0


def test_a_refusal_is_told_with_its_reason_and_not_repeated() -> None:
    bodies: list[Any] = []

    def refuse(body: dict[str, Any]) -> Any:
        bodies.append(body)
        raise web.HTTPNotFound(text="there is no model m here")

    with pytest.raises(RewardFailed, match="HTTP 404: there is no model m here"):
        served(refuse, lambda url: http_reward("style", RewardSpec(url=url), TASK, "s", "a", None))
    assert len(bodies) == 1


def test_an_answer_cannot_fill_the_template_twice_and_no_number_is_no_reward() -> None:
    assert filled("{answer}|{prompt}", "{answer}", "{prompt}") == "{prompt}|{answer}"
    with pytest.raises(RewardFailed, match="no number"):
        parsed("j", r"score: (\d+)", "I cannot say.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prompt = 'x'\n[rewards.r]\nresult = 'junit'\n", "exactly one of command, function, kernel, url, judge_url"),
        ("prompt = 'x'\n[rewards.r]\ncommand = 'a'\nurl = 'b'\n", "here: command, url"),
        ("prompt = 'x'\n[rewards.r]\nkernel = 'k.py'\n", "needs reference_src"),
        ("prompt = 'x'\nsetp = 'y'\n", "unknown field `setp`"),
        ("prompt = 'x'\nfolder = 'none'\n", "no folder beside the task file"),
        ("prompt = \n", "cannot read the task file"),
    ],
)
def test_a_wrong_task_file_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "task.toml").write_text(text)
    with pytest.raises(TaskError, match=message):
        load_all_tasks(tmp_path)


def test_tasks_of_every_form_are_read_from_one_folder(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("prompt = 'x'\nfolder = 'repo'\n[files]\n'a.py' = 'x'\n")
    (tmp_path / "repo").mkdir()
    line = {"task_id": "two", "prompt": "y", "rewards": {"r": {"command": "true"}}, "split": "heldout"}
    (tmp_path / "more.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
    (tmp_path / "kernels.jsonl").write_bytes(b'{"task_id": "three", "prompt": "z", "reference_src": "x"}\n')
    tasks = {task.task_id: task for task in load_all_tasks(tmp_path)}
    assert sorted(tasks) == ["one", "three", "two"]
    one = tasks["one"]
    assert isinstance(one, AgentTask) and one.folder == str(tmp_path / "repo")
    assert one.registered() == {"task_id": "one", "prompt": "x", "split": "train", "folder": str(tmp_path / "repo")} | {
        "files": ["a.py"],
        "hidden": [],
    }
