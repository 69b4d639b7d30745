"""The server as clients see it: requests, concurrency, recovery from lost processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.errors import InsecureBinding, SandboxUnavailable
from weir.kernel_eval.sandbox import containment
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.server.app import create_app

Read = Callable[[str], str]
SLOW = "        import time; time.sleep(1.0)\n        return out"


def wait_until(what: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def descendants(pid: int) -> list[int]:
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    children = [int(child) for child in listing.read_text().split()] if listing.exists() else []
    return children + [below for child in children for below in descendants(child)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"custom_model_src": "x"}',
        b'{"original_model_src": 1, "custom_model_src": "x"}',
        b'{"original_model_src": "x", "custom_model_src": "x", "num_correct_trials": 0}',
        b'{"original_model_src": "x", "custom_model_src": "x", "num_correct_trials": 100000}',
        b'{"original_model_src": "x", "custom_model_src": "x", "num_perf_trials": -1}',
        b'{"original_model_src": "x", "custom_model_src": "x", "backend": "metal"}',
        b'{"original_model_src": "\xff", "custom_model_src": "x"}',
    ],
)
def test_a_malformed_request_gets_400_and_a_reason(body: bytes, server: Any) -> None:
    response = server.http.post("/eval", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request"
    assert len(response.json()["error"]["message"]) > 10


@pytest.mark.parametrize(
    "fields",
    [
        {"seed_num": 10**30},
        {"seed_num": -(2**64)},
        {"num_perf_trials": 10**9},
        {"num_correct_trials": 10**9},
        {"relax_rules": ["no_such_rule"]},
        {"preferred_device": [0]},
    ],
    ids=str,
)
def test_numbers_beyond_reason_are_refused(fields: dict[str, Any], server: Any, read_example: Read) -> None:
    body = {"original_model_src": read_example("relu_task"), "custom_model_src": "", "job_id": "beyond", **fields}
    response = server.http.post("/eval", json=body)
    assert response.status_code == 400, response.text
    assert next(iter(fields)) in response.json()["error"]["message"]


@pytest.mark.parametrize("device", [10**30, -1, "cuda:" + "9" * 5000, "cuda:\u00b2", "\u0663", ""])
def test_a_device_that_there_is_not_is_no_preference(device: int | str, server: Any, read_example: Read) -> None:
    assert server.evaluate(read_example("relu_candidate"), preferred_device=device, use_cache=True)["correct"]


def test_unknown_paths_and_methods_have_the_same_error_shape(server: Any) -> None:
    assert {*server.http.get("/nowhere").json()["error"]} == {"message", "type"}
    assert {*server.http.get("/eval").json()["error"]} == {"message", "type"}


def test_a_body_that_is_too_large_is_refused(start_server: Any) -> None:
    with start_server(max_body_bytes=2048) as small:
        response = small.http.post("/eval", content=b"x" * 4096)
    assert response.status_code == 413


def test_the_key_is_asked_for_where_there_is_one(start_server: Any, read_example: Read) -> None:
    with start_server(api_key="secret") as locked:
        body = {"original_model_src": read_example("relu_task"), "custom_model_src": read_example("relu_candidate")}
        refused = locked.http.post("/eval", json=body)
        wrong = locked.http.post("/eval", json=body, headers={"authorization": "Bearer other"})
        accepted = locked.http.post("/eval", json=body, headers={"authorization": "Bearer secret"})
    assert [r.status_code for r in (refused, wrong, accepted)] == [401, 401, 200]
    assert accepted.json()["correct"]


def test_it_does_not_listen_for_others_without_a_key() -> None:
    with pytest.raises(InsecureBinding, match="api_key"):
        create_app(KernelEvalConfig(host="0.0.0.0"))


def test_it_does_not_start_below_the_configured_sandbox_level() -> None:
    with pytest.raises(SandboxUnavailable, match="min_sandbox is bubblewrap"):
        create_app(KernelEvalConfig(sandbox=SandboxLevel.RLIMITS, min_sandbox=SandboxLevel.BUBBLEWRAP))


def test_equal_requests_are_answered_from_the_cache_only_when_asked(server: Any, read_example: Read) -> None:
    source = read_example("relu_candidate") + "\n# cached\n"
    first, again = (server.evaluate(source, use_cache=True) for _ in range(2))
    fresh = server.evaluate(source)
    assert ["cached" in reply["details"] for reply in (first, again, fresh)] == [False, True, False]
    assert again["raw_reward"] == first["raw_reward"] == 1.0


def test_equal_requests_that_meet_are_judged_once_when_they_may_be_answered_from_the_cache(
    server: Any, read_example: Read
) -> None:
    source = read_example("relu_candidate") + "\n# asked for four times at once\n"
    with ThreadPoolExecutor(4) as askers:
        replies = list(askers.map(lambda _: server.evaluate(source, use_cache=True), range(4)))
    assert sorted("cached" in reply["details"] for reply in replies) == [False, True, True, True]
    assert {reply["raw_reward"] for reply in replies} == {1.0}


def test_metrics_count_results(server: Any, read_example: Read) -> None:
    server.evaluate(read_example("relu_candidate"))
    assert 'weir_kernel_eval_results_total{outcome="correct"}' in server.http.get("/metrics").text


def test_many_at_once_are_all_judged_rightly_while_health_answers(server: Any, read_example: Read) -> None:
    right = read_example("relu_candidate")
    wrong = right.replace("tl.maximum(x, 0.0)", "x")
    crashing = right.replace("        return out", "        import ctypes; ctypes.string_at(0)")
    leaving = right.replace("        return out", "        import os; os._exit(0)")
    sources = [right, wrong, crashing, leaving] * 8

    async def one(http: httpx.AsyncClient, source: str) -> str | None:
        body = {"original_model_src": read_example("relu_task"), "custom_model_src": source, "num_correct_trials": 2}
        fault: str | None = (await http.post("/eval", json=body)).json()["fault"]
        return fault

    async def watch(http: httpx.AsyncClient, done: asyncio.Event) -> list[tuple[float, int, int]]:
        seen = []
        while not done.is_set():
            started = time.monotonic()
            state = (await http.get("/health")).json()
            seen.append((time.monotonic() - started, state["running"], state["queue"]))
            await asyncio.sleep(0.01)
        return seen

    async def all_at_once() -> tuple[list[str | None], list[tuple[float, int, int]]]:
        async with httpx.AsyncClient(base_url=server.url, timeout=120, trust_env=False) as http:
            done = asyncio.Event()
            watching = asyncio.create_task(watch(http, done))
            faults = await asyncio.gather(*(one(http, source) for source in sources))
            done.set()
            return list(faults), await watching

    faults, seen = asyncio.run(all_at_once())
    assert faults == [None, "output_mismatch", "segfault", "early_exit"] * 8
    assert max(running for _, running, _ in seen) == server.http.get("/health").json()["slots"]
    assert max(queue for _, _, queue in seen) > 10
    latencies = sorted(latency for latency, _, _ in seen)
    assert latencies[len(latencies) // 2] < 0.2


def test_a_full_queue_is_said_so(start_server: Any, read_example: Read) -> None:
    slow = read_example("relu_candidate").replace("        return out", SLOW)
    body = {"original_model_src": read_example("relu_task"), "custom_model_src": slow, "num_correct_trials": 1}

    async def burst(url: str) -> list[int]:
        async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
            answers = await asyncio.gather(*(http.post("/eval", json=body) for _ in range(4)))
            return sorted(answer.status_code for answer in answers)

    with start_server(concurrency=1, max_queue=1) as narrow:
        assert asyncio.run(burst(narrow.url)) == [200, 200, 503, 503]


def test_a_zygote_that_is_killed_in_the_middle_costs_no_result(start_server: Any, read_example: Read) -> None:
    slow = read_example("relu_candidate").replace("        return out", SLOW)
    with start_server(concurrency=1) as victim:
        victim.evaluate(read_example("relu_candidate"))
        body = {"original_model_src": read_example("relu_task"), "custom_model_src": slow, "num_correct_trials": 1}

        async def kill_while_judging() -> dict[str, Any]:
            async with httpx.AsyncClient(base_url=victim.url, timeout=120, trust_env=False) as http:
                judging = asyncio.create_task(http.post("/eval", json=body))
                while not (state := (await http.get("/health")).json())["running"]:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.01)
                os.kill(state["zygotes"][0]["pid"], signal.SIGKILL)
                reply: dict[str, Any] = (await judging).json()
                return reply

        reply = asyncio.run(kill_while_judging())
        state = victim.http.get("/health").json()
    assert (reply["correct"], reply["raw_reward"]) == (True, 1.0), reply
    assert state["zygotes"][0]["starts"] == 2


@pytest.mark.parametrize("level", list(SandboxLevel))
def test_nothing_is_left_when_the_server_is_killed(level: SandboxLevel, start_server: Any, read_example: Read) -> None:
    if not containment.works(level):
        pytest.skip(f"the sandbox level {level} does not work on this machine")
    with start_server(sandbox=level) as victim:
        victim.evaluate(read_example("relu_candidate"))
        family = descendants(victim.process.pid)
        victim.process.kill()
        victim.process.wait()
        assert len(family) >= 3
        wait_until(lambda: not any(is_alive(pid) for pid in family))


def test_an_evaluation_leaves_no_process_and_no_file_behind(contained_server: Any, read_example: Read) -> None:
    contained_server.evaluate(read_example("relu_candidate"))

    def standing() -> set[int | Path]:
        files = Path("/tmp").glob("weir-kernel-eval-*/*/candidate.py")
        return {*descendants(contained_server.process.pid), *files}

    before = standing()  # zygotes, and what of the first evaluation still ends
    threads = read_example("relu_candidate").replace(
        "        return out",
        "        import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()\n        return out",
    )
    assert contained_server.evaluate(threads)["details"]["rule"] == "background_thread"
    wait_until(lambda: standing() <= before)  # workers may end after the verdict is out


def test_a_server_that_is_stopped_removes_its_folders(
    start_server: Any, read_example: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with start_server(sandbox="rlimits") as stopped:
        assert stopped.evaluate(read_example("relu_candidate"))["correct"]
        num_forkservers = len(stopped.http.get("/health").json()["zygotes"])
        assert len(list(tmp_path.iterdir())) == num_forkservers
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["client", "config", "server.app", "server.main", "machines.gpu_local"])
def test_neither_server_nor_client_imports_torch(module: str) -> None:
    code = f"import sys, weir.kernel_eval.{module}; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_body_that_is_said_to_be_too_large_is_refused_before_it_is_sent(server: Any) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"POST /eval HTTP/1.1\r\nHost: weir\r\nContent-Length: 99999999999\r\n\r\n{")
        assert b" 413 " in client.recv(100)


def test_a_server_that_is_started_without_standard_streams_judges(read_example: Read) -> None:
    command = [sys.executable, "-m", "weir.kernel_eval.server.main", '{"port": 0, "gpus": []}']
    shell = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[2]
            body = {"original_model_src": read_example("relu_task"), "custom_model_src": read_example("relu_candidate")}
            reply = httpx.post(f"{url}/eval", json=body, timeout=120, trust_env=False).json()
        finally:
            process.terminate()
    assert reply["correct"] is True
    assert reply["fault_message"] is None


def test_a_limit_on_open_files_that_is_too_low_is_named_and_one_that_can_be_raised_is() -> None:
    serve = [sys.executable, "-m", "weir.kernel_eval.server.main", '{"port": 0, "gpus": [], "concurrency": 2}']
    refused = subprocess.run(["sh", "-c", 'ulimit -n 24; exec "$@"', "sh", *serve], capture_output=True, text=True)
    assert refused.returncode != 0
    assert "may open 24 files, and 144 are needed" in refused.stderr
    with subprocess.Popen(["sh", "-c", 'ulimit -Sn 24; exec "$@"', "sh", *serve], stdout=subprocess.PIPE) as raised:
        try:
            assert raised.stdout is not None and raised.stdout.readline().startswith(b"weir kernel-eval: http://")
        finally:
            raised.terminate()


def test_a_byte_order_mark_before_a_source_is_taken_away(server: Any, read_example: Any) -> None:
    mark = "\ufeff"
    reply = server.evaluate(mark + read_example("relu_candidate"), mark + read_example("relu_task"))
    assert (reply["correct"], reply["fault"]) == (True, None), reply


SLOW_TASK = """
import time, torch
class Model(torch.nn.Module):
    def forward(self, x): return x * 2
def get_inputs():
    time.sleep(600)
    return [torch.ones(4)]
def get_init_inputs(): return []
"""


def test_a_check_whose_client_is_gone_is_ended(start_server: Any, read_example: Any) -> None:
    with start_server(concurrency=1, reference_timeout_s=600.0) as own:
        with pytest.raises(httpx.ReadTimeout):
            own.http.post("/tasks/check", json={"reference_src": SLOW_TASK}, timeout=3.0)
        reply = own.evaluate(read_example("relu_candidate"))  # gets the only slot
        assert reply["correct"], reply
        assert own.http.get("/health").json()["running"] == 0


def test_draws_are_new_in_each_evaluation_unless_they_are_fixed(start_server: Any, read_example: Read) -> None:
    wrong = read_example("relu_candidate").replace("tl.maximum(x, 0.0)", "tl.maximum(x, 0.0) * (x < 2.5)")
    assert wrong != read_example("relu_candidate")
    with start_server(draws_from="one") as one, start_server(draws_from="another") as another:
        fixed = [one.evaluate(wrong) for _ in range(2)]
        other = another.evaluate(wrong)
    with start_server(draws_from=None) as new:
        drawn = [new.evaluate(wrong) for _ in range(2)]
    assert "draws=fixed" in one.first_line and "draws=" not in new.first_line
    assert {reply["details"].get("draws") for reply in (*fixed, other)} == {"fixed"}
    messages = [reply["fault_message"] for reply in (*fixed, other, *drawn)]  # which value is wrong, and by how much
    assert messages[0] == messages[1] and len(set(messages)) == 4, messages
    assert not any("draws" in reply["details"] for reply in drawn)
