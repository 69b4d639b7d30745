"""Several worker processes on one port: one gate, one state, and calls that do not depend on the worker they reach."""

import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support_router import Router
from support_scripted_engine import Script, ScriptedEngine
from support_way import ids_of
from support_workers import Workers, running_workers

USER: Any = [{"role": "user", "content": "Hi"}]
ANSWER = "Hello there, you."


@pytest.fixture
def workers(scripted: tuple[ScriptedEngine, Router], tiny_model_dir: Path, tmp_path: Path) -> Iterator[Workers]:
    engine, router = scripted
    engine.forget()
    engine.script = lambda _: Script(ids=ids_of(ANSWER), version="3")
    with running_workers(tmp_path, tiny_model_dir, router.url, 2) as running:
        yield running


def ask(workers: Workers) -> str:
    """One call on a connection of its own, so that the kernel chooses a worker anew."""
    with workers.client(max_retries=3) as client:
        created = client.chat.completions.create(model="weir", messages=USER)
    return created.choices[0].message.content or ""


def ask_until_all_have_served(workers: Workers) -> int:
    """Call until every worker has served; returns the number of calls."""
    number = 0
    while not all(worker["calls"] for worker in workers.state()["workers"]):
        assert ask(workers) == ANSWER
        number += 1
    return number


def test_calls_meet_any_worker_and_all_are_recorded_and_counted(workers: Workers) -> None:
    number = ask_until_all_have_served(workers)
    state = workers.state()
    assert (state["calls"], state["weight_version"], len(state["workers"])) == (number, "3", 2)
    assert len(workers.records()) == number
    assert len(list((workers.store / "log").iterdir())) == 2
    metrics = httpx.get(workers.url + "/metrics", trust_env=False, timeout=120).text
    assert f'weir_calls_total{{dialect="chat",finish="stop"}} {float(number)}' in metrics
    assert "weir_gate_open 1.0" in metrics


def test_a_pause_at_one_worker_holds_the_calls_of_all(
    workers: Workers, scripted: tuple[ScriptedEngine, Router]
) -> None:
    assert workers.control("POST", "/weir/pause") == {"gate": "closed", "in_flight": 0}
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(ask, workers) for _ in range(12)]
        state = workers.wait_until(lambda state: state["held"] == 12)
        assert [worker["gate"] for worker in state["workers"]] == ["closed"] * 2
        assert scripted[0].requests == []
        assert "weir_gate_open 0.0" in httpx.get(workers.url + "/metrics", trust_env=False, timeout=120).text
        assert workers.control("POST", "/weir/resume", {"weight_version": 4}) == {"gate": "open"}
        assert [answer.result() for answer in answers] == [ANSWER] * 12
    assert [worker["announced_version"] for worker in workers.state()["workers"]] == ["4"] * 2


def test_a_worker_that_dies_while_the_gate_is_closed_comes_back_closed_and_opens_with_the_others(
    workers: Workers,
) -> None:
    before = workers.control("POST", "/weir/resume", {"weight_version": 7}) and workers.state()["workers"]
    workers.control("POST", "/weir/pause")
    names = {worker["worker"] for worker in before}
    workers.kill_worker(next(iter(names)))

    def has_come_back_closed(state: Any) -> bool:  # a worker is listed before it asks for the gate, and then listens
        others = [worker for worker in state["workers"] if worker["worker"] not in names]
        closed = [(worker["gate"], worker["announced_version"]) for worker in state["workers"]]
        return len(others) == 1 and closed == [("closed", "7")] * 2

    workers.wait_until(has_come_back_closed)
    workers.control("POST", "/weir/resume")
    assert [worker["gate"] for worker in workers.state()["workers"]] == ["open"] * 2
    ask_until_all_have_served(workers)


def test_sigterm_lets_the_calls_of_all_workers_finish_and_seals_their_logs(
    workers: Workers, scripted: tuple[ScriptedEngine, Router]
) -> None:
    engine = scripted[0]
    engine.script = lambda _: Script(ids=ids_of(ANSWER), cut="wait", cut_after=1)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, workers) for _ in range(8)]
        engine.wait_waiting(8)
        os.killpg(workers.process.pid, signal.SIGTERM)
        while httpx.codes.is_success(_status(workers.url + "/readyz")):
            pass
        engine.go_on()
        assert [answer.result() for answer in answers] == [ANSWER] * 8
    assert workers.process.wait() == 0
    assert len(workers.records()) == 8
    assert not [path for path in (workers.store / "log").glob("*/*.wal") if not path.name.endswith(".sealed.wal")]
    assert list((workers.store / "proxies").glob("*/*.sock")) == []


def test_a_port_that_another_proxys_workers_share_is_refused(workers: Workers, tmp_path: Path) -> None:
    done = _start(tmp_path, "--port", workers.url.rpartition(":")[2], "--model", str(tmp_path))
    assert done.returncode == 2
    assert "Address already in use; set proxy.host and proxy.port" in done.stderr


def test_workers_that_cannot_start_end_the_proxy_with_their_reason(tmp_path: Path) -> None:
    done = _start(tmp_path, "--port", "0", "--model", str(tmp_path))
    assert done.returncode == 2
    assert "weir: " in done.stderr and str(tmp_path) in done.stderr


def _status(url: str) -> int:
    try:
        return httpx.get(url, trust_env=False, timeout=120).status_code
    except httpx.TransportError:
        return 503


def _start(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "proxy", "--workers", "2", *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_retries_that_reach_other_workers_are_given_the_answer_in_flight(
    workers: Workers, scripted: tuple[ScriptedEngine, Router]
) -> None:
    ask_until_all_have_served(workers)
    num_before = len(workers.records())
    engine = scripted[0]
    engine.script = lambda _: Script(ids=ids_of(ANSWER), cut="wait", cut_after=1)

    def post(attempt: int) -> httpx.Response:
        body = {"model": "weir", "messages": [{"role": "user", "content": "Hi"}]}
        headers = {"x-stainless-retry-count": str(attempt)}
        return httpx.post(workers.url + "/s/a/v1/chat/completions", json=body, headers=headers, timeout=60)

    def counted(how: str) -> float:
        shown = httpx.get(workers.url + "/metrics", trust_env=False, timeout=120).text
        return sum(float(n) for n in re.findall(rf'weir_retries_total{{how="{how}"}} (\S+)', shown))

    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        first = pool.submit(post, 0)
        engine.wait_waiting()
        retries = []
        while not counted("handed_over"):
            retries.append(pool.submit(post, 1))
            while counted("joined") < len(retries):
                threading.Event().wait(0.01)
        engine.go_on()
        answers = [one.result() for one in (first, *retries)]
    assert len({answer.headers["x-weir-call"] for answer in answers}) == 1
    assert len({answer.content for answer in answers}) == 1
    assert len(workers.records()) == num_before + 1
