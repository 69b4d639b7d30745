"""The runner against the proxy's control routes: what is registered and finished, and what becomes of failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from weir.agents.config import AgentsConfig
from weir.agents.errors import AgentImportError, AgentsError, ProxyRefused, ProxyUnavailable
from weir.agents.family import family_tasks
from weir.agents.runner import GroupOutcome, RunSummary, import_agent, run_groups, sample_tasks
from weir.kernel_eval.client import KernelTask

TASKS = family_tasks("train")[:3]


async def one_turn(task: KernelTask, base_url: str, api_key: str, config: AgentsConfig) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"turns": 1, "correct": True}


async def collect(stubs: Any, agent: Any = one_turn, **options: Any) -> list[GroupOutcome]:
    async with stubs.control() as control:
        return [group async for group in run_groups(TASKS, agent, control, stubs.config, **options)]


def summary_of(groups: list[GroupOutcome]) -> RunSummary:
    summary = RunSummary()
    for group in groups:
        summary.add(group)
    return summary


def test_every_session_is_registered_with_its_group_and_finished_once(stubs: Any) -> None:
    async def scenario() -> None:
        async with stubs(samples=4, concurrency=5) as s:
            groups = await collect(s, num_groups=3)
            assert sorted(g.task_id for g in groups) == sorted(t.task_id for t in TASKS)
            assert len(s.proxy.sessions) == 12
            assert dict(s.proxy.num_finished) == dict.fromkeys(s.proxy.sessions, 1)
            assert {body["group_size"] for body in s.proxy.sessions.values()} == {4}
            registered = {(body["group"], body["task"]["task_id"]) for body in s.proxy.sessions.values()}
            assert registered == {(g.group_id, g.task_id) for g in groups}
            finish = next(iter(s.proxy.finished.values()))
            assert finish["status"] == "done"
            assert (finish["info"]["turns"], finish["info"]["correct"]) == (1, True)
            summary = summary_of(groups)
            assert (summary.groups, summary.sessions, summary.calls, summary.correct) == (3, 12, 12, 12)
            assert not summary.failures

    asyncio.run(scenario())


def test_an_agent_that_crashes_is_finished_as_failed_with_its_error(stubs: Any) -> None:
    async def crash(task: KernelTask, base_url: str, api_key: str, config: AgentsConfig) -> dict[str, Any]:
        raise LookupError("no such tool")

    async def scenario() -> None:
        async with stubs(samples=2) as s:
            groups = await collect(s, crash, num_groups=1)
            assert {f["status"] for f in s.proxy.finished.values()} == {"failed"}
            assert {f["info"]["error"] for f in s.proxy.finished.values()} == {"no such tool"}
            assert {f["info"]["failure"] for f in s.proxy.finished.values()} == {"LookupError"}
            assert summary_of(groups).failures == {"LookupError": 2}
            assert summary_of(groups).first_error == "no such tool"

    asyncio.run(scenario())


def test_dropped_connections_and_5xx_of_the_control_routes_are_repeated(stubs: Any) -> None:
    async def scenario() -> None:
        async with stubs(samples=1, concurrency=1) as s:
            s.proxy.refuse_next = [0, 503, 500, 429]
            groups = await collect(s, num_groups=2)
            assert not summary_of(groups).failures
            assert list(s.proxy.num_finished.values()) == [1, 1]
            assert s.proxy.refuse_next == []

    asyncio.run(scenario())


def test_a_refusal_is_not_repeated_and_counted_by_its_kind(stubs: Any) -> None:
    async def scenario() -> None:
        async with stubs(samples=1, concurrency=1) as s:
            s.proxy.refuse_next = [422]
            groups = await collect(s, num_groups=2)
            assert summary_of(groups).failures == {"ProxyRefused": 1}
            assert len(s.proxy.finished) == 1
            s.proxy.refuse_next = [401]
            async with s.control() as control:
                with pytest.raises(ProxyRefused, match="HTTP 401") as refused:
                    await control.finish("session_1", status="done", info={})
            assert refused.value.status == 401

    asyncio.run(scenario())


def test_a_proxy_that_stays_away_is_reported_with_what_to_do(stubs: Any) -> None:
    async def scenario() -> None:
        async with stubs(samples=1, control_retries=2) as s:
            s.proxy.refuse_next = [503] * 3
            async with s.control() as control:
                with pytest.raises(ProxyUnavailable, match=r"3 attempts \(HTTP 503.*weir proxy"):
                    await control.register(group_id="g", task={}, group_size=1, metadata={})

    asyncio.run(scenario())


def test_at_most_concurrency_agents_run_at_a_time(stubs: Any) -> None:
    running = most = 0

    async def watched(task: KernelTask, base_url: str, api_key: str, config: AgentsConfig) -> dict[str, Any]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1
        return {"turns": 1}

    async def scenario() -> None:
        async with stubs(samples=4, concurrency=3) as s:
            await collect(s, watched, num_groups=4)

    asyncio.run(scenario())
    assert most == 3


def test_permits_bound_how_far_groups_run_ahead(stubs: Any) -> None:
    async def scenario() -> None:
        async with stubs(samples=2) as s, s.control() as control:
            permits = asyncio.Semaphore(2)
            groups = run_groups(TASKS, one_turn, control, s.config, permits=permits)
            await anext(groups)
            await anext(groups)
            third = asyncio.ensure_future(anext(groups))
            await asyncio.wait({third}, timeout=0.2)
            assert not third.done()
            assert len(s.proxy.sessions) == 4
            permits.release()
            assert len((await third).sessions) == 2
            await groups.aclose()

    asyncio.run(scenario())


def test_stop_lets_the_groups_that_run_end_and_starts_no_other(stubs: Any) -> None:
    async def scenario() -> None:
        stop = asyncio.Event()
        async with stubs(samples=2, concurrency=2) as s, s.control() as control:
            groups = [await anext(run := run_groups(TASKS, one_turn, control, s.config, stop=stop))]
            stop.set()
            groups += [group async for group in run]
            assert all(len(group.sessions) == 2 for group in groups)
            assert len(groups) <= 3
            assert dict(s.proxy.num_finished) == dict.fromkeys(s.proxy.sessions, 1)

    asyncio.run(scenario())


def test_closing_the_iterator_finishes_running_sessions_as_failed(stubs: Any) -> None:
    async def scenario() -> None:
        started, forever = asyncio.Event(), asyncio.Event()

        async def hang(task: KernelTask, base_url: str, api_key: str, config: AgentsConfig) -> dict[str, Any]:
            started.set()
            await forever.wait()
            return {}

        async with stubs(samples=1, concurrency=1) as s, s.control() as control:
            groups = run_groups(TASKS, hang, control, s.config)
            first = asyncio.ensure_future(anext(groups))
            await started.wait()
            first.cancel()
            await asyncio.wait({first})
            await groups.aclose()
            assert [f["status"] for f in s.proxy.finished.values()] == ["failed"]
            assert list(s.proxy.finished) == list(s.proxy.sessions)

    asyncio.run(scenario())


def test_measuring_sessions_have_no_group_size(stubs: Any) -> None:
    async def scenario() -> None:
        async with stubs(samples=1) as s:
            await collect(s, num_groups=1, trainable=False)
            assert ["group_size" in body for body in s.proxy.sessions.values()] == [False]

    asyncio.run(scenario())


def test_sessions_are_registered_with_the_budget_of_the_settings(stubs: Any) -> None:
    async def scenario() -> None:
        async with stubs(samples=1, max_calls=3, max_seconds=1.5) as s:
            await collect(s, num_groups=1)
            assert [b["budget"] for b in s.proxy.sessions.values()] == [{"max_calls": 3, "max_seconds": 1.5}]

    asyncio.run(scenario())


def test_sampling_uses_every_task_once_before_any_twice_and_depends_on_the_seed() -> None:
    tasks = family_tasks("train")
    sampler = sample_tasks(tasks, seed=3)
    first = [next(sampler).task_id for _ in tasks]
    second = [next(sampler).task_id for _ in tasks]
    assert sorted(first) == sorted(second) == sorted(task.task_id for task in tasks)
    assert first != second
    assert first == [task.task_id for task, _ in zip(sample_tasks(tasks, seed=3), tasks, strict=False)]
    with pytest.raises(AgentsError, match="no tasks"):
        next(sample_tasks([], seed=0))


def test_an_agent_is_imported_by_its_path() -> None:
    from weir.agents.kernel_agent import solve

    assert import_agent("weir.agents.kernel_agent:solve") is solve
    for path in ("weir.agents.kernel_agent", "weir.agents.nothing:solve", "weir.agents.kernel_agent:INSTRUCTIONS"):
        with pytest.raises(AgentImportError, match="agent"):
            import_agent(path)
