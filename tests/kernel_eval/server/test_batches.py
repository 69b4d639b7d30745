"""Batches of evaluations, repeated jobs, a full queue, and the routes for operators."""

from __future__ import annotations

import base64
import concurrent.futures
import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

Read = Callable[[str], str]
SLOW = "        import time; time.sleep(0.4)\n        return out"


@pytest.fixture
def slow(read_example: Read) -> str:
    """A candidate that takes seconds."""
    return read_example("relu_candidate").replace("        return out", SLOW)


@pytest.fixture
def request_of(read_example: Read) -> Callable[..., dict[str, Any]]:
    """`request_of(candidate, **fields)`: the body of an evaluation."""

    def make(candidate: str | None = None, **fields: Any) -> dict[str, Any]:
        source = read_example("relu_candidate") if candidate is None else candidate
        return {"original_model_src": read_example("relu_task"), "custom_model_src": source} | {
            "num_correct_trials": 2,
            **fields,
        }

    return make


def lines(response: httpx.Response) -> dict[int, dict[str, Any]]:
    answers = [json.loads(line) for line in response.text.splitlines()]
    assert len({answer["index"] for answer in answers}) == len(answers)
    return {answer["index"]: answer for answer in answers}


def test_a_batch_answers_every_item_and_an_item_s_mistake_is_its_own(server: Any, request_of: Any) -> None:
    items = [request_of(), request_of("x ="), {"custom_model_src": 5}, request_of(num_correct_trials=0), request_of()]
    response = server.http.post("/eval/batch", json={"items": items})
    assert response.headers["content-type"].startswith("application/x-ndjson")
    answers = lines(response)
    assert [answers[i]["status"] for i in range(5)] == [200, 200, 400, 400, 200]
    assert [answers[i]["reply"]["correct"] for i in (0, 1, 4)] == [True, False, True]
    assert answers[1]["reply"]["fault"] == "syntax_error"
    assert answers[2]["error"]["type"] == "invalid_request"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"items": []}', b'{"items": 5}', b'{"items": [' + b"{}," * 2000 + b"{}]}"]
)
def test_a_malformed_batch_is_refused_as_a_whole(server: Any, body: bytes) -> None:
    response = server.http.post("/eval/batch", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request"


def test_items_are_streamed_as_they_are_known(start_server: Any, request_of: Any, slow: str) -> None:
    with start_server(concurrency=2) as server:
        items = [request_of(slow), request_of()]
        with server.http.stream("POST", "/eval/batch", json={"items": items}) as response:
            first = json.loads(next(response.iter_lines()))
        assert first["index"] == 1


def test_a_client_that_leaves_ends_what_was_not_begun(start_server: Any, request_of: Any, slow: str) -> None:
    with start_server(concurrency=1) as server:
        items = [request_of()] + [request_of(slow, seed_num=n) for n in range(40)]
        with server.http.stream("POST", "/eval/batch", json={"items": items}) as response:
            next(response.iter_lines())
        while server.http.get("/health").json()["running"]:
            threading.Event().wait(0.05)
        assert server.http.get("/health").json()["queue"] == 0
        assert server.evaluate(items[0]["custom_model_src"])["correct"] is True


def test_a_job_id_is_evaluated_once_and_stands_for_one_content(start_server: Any, request_of: Any, slow: str) -> None:
    with start_server(concurrency=2) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        job = request_of(slow, job_id="job-1")
        answers = list(pool.map(lambda _: server.http.post("/eval", json=job).json(), range(4)))
        assert all(answer == answers[0] for answer in answers)
        assert server.http.post("/eval", json=job).json() == answers[0]
        assert 'results_total{outcome="correct"} 1.0' in server.http.get("/metrics").text
        other = server.http.post("/eval", json=job | {"seed_num": 7})
        assert (other.status_code, "job-1" in other.json()["error"]["message"]) == (409, True)


def test_a_full_queue_says_when_to_ask_again(start_server: Any, request_of: Any, slow: str) -> None:
    with start_server(concurrency=1, max_queue=1) as server, concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda n: server.http.post("/eval", json=request_of(slow, seed_num=n)), range(6)))
        refused = [answer for answer in answers if answer.status_code == 503]
        assert 1 <= len(refused) <= 5
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert all(answer.json()["correct"] for answer in answers if answer.status_code == 200)


def test_sources_may_be_base64(server: Any, request_of: Any) -> None:
    names = ("original_model_src", "custom_model_src")
    plain = request_of()
    coded = plain | {name: base64.b64encode(plain[name].encode()).decode() for name in names} | {"encoding": "base64"}
    assert server.http.post("/eval", json=coded).json()["correct"] is True
    refused = server.http.post("/eval", json=plain | {"encoding": "base64"})
    assert (refused.status_code, "base64" in refused.json()["error"]["message"]) == (400, True)


@pytest.fixture
def fake_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes servers see these GPUs, through a fake NVML module."""

    def install(gpus: str) -> None:
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "gpu" / "fake_nvml"))
        monkeypatch.setenv("FAKE_GPUS", gpus)

    return install


def test_gpus_that_are_not_there_are_an_empty_list_and_a_404(
    start_server: Any, fake_gpus: Callable[[str], None]
) -> None:
    fake_gpus("no driver")
    with start_server() as server:
        assert server.http.get("/gpu_status").json() == {"gpus": [], "mode": "interpreter"}
        assert server.http.post("/reset_gpu/0").status_code == 404
        for number in ("x", "-1", "\u00b2", "9" * 5000):
            assert server.http.post(f"/reset_gpu/{number}").status_code == 404
        assert server.http.post("/reset_devices").json() == {"reset": [], "busy": [], "failed": []}


def test_a_gpu_in_use_is_never_reset(
    start_server: Any, fake_gpus: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """GPU 0 is free, GPU 1 has a process; a fake nvidia-smi records its arguments."""
    asked = tmp_path / "asked"
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    gpu = {"memory_mib": [81559, 1], "errors": 0}
    fake_gpus(json.dumps([{**gpu, "uuid": "GPU-a"}, {**gpu, "uuid": "GPU-b", "pids": [4242]}]))
    with start_server() as server:
        assert [gpu["healthy"] for gpu in server.http.get("/gpu_status").json()["gpus"]] == [True, True]
        busy = server.http.post("/reset_gpu/1")
        assert (busy.status_code, "4242" in busy.json()["error"]["message"]) == (409, True)
        assert server.http.post("/reset_devices").json() == {"reset": [0], "busy": [1], "failed": []}
        assert server.http.post("/reset_gpu/7").status_code == 404
    assert asked.read_text().splitlines() == ["--gpu-reset --id=GPU-a"]


def test_operators_routes_ask_for_the_key_too(start_server: Any) -> None:
    with start_server(api_key="secret") as server:
        paths = [("GET", "/gpu_status"), ("POST", "/reset_gpu/0"), ("POST", "/reset_devices"), ("POST", "/cleanup")]
        paths += [("POST", "/eval"), ("POST", "/eval/batch")]
        assert [server.http.request(method, path).status_code for method, path in paths] == [401] * 6
        assert server.http.get("/health").status_code in (200, 503)


def test_cleanup_removes_what_killed_servers_left_and_nothing_else(
    start_server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request_of: Any
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    dead = subprocess.Popen(["true"])
    dead.wait()
    (tmp_path / f"weir-kernel-eval-{dead.pid}-left" / "deep").mkdir(parents=True)
    (tmp_path / "weir-kernel-eval-notes").mkdir()
    with start_server(sandbox="rlimits") as server:
        assert server.evaluate(request_of()["custom_model_src"])["correct"] is True
        report = server.http.post("/cleanup").json()
        assert report == {"judges_ended": 1, "folders_removed": [f"weir-kernel-eval-{dead.pid}-left"]}
        assert (tmp_path / "weir-kernel-eval-notes").is_dir()
        assert server.evaluate(request_of()["custom_model_src"])["correct"] is True
