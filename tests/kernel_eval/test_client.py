"""The client with a scripted server over a real socket, and with a real server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from weir.kernel_eval.client import (
    EvalResult,
    KernelEvalClient,
    KernelEvalRejected,
    KernelEvalUnavailable,
    KernelTask,
    KernelUnsupported,
    candidate_source,
    feedback,
)

TASK = KernelTask(task_id="t", prompt="p", reference_src="r")
RIGHT = {
    "compiled": True,
    "correct": True,
    "fault": None,
    "fault_message": None,
    "raw_reward": 1.0,
    "sandbox": "bubblewrap",
    "mode": "interpreter",
    "trials": 3,
    "seconds": 0.1,
    "details": {},
}
OUTAGE = {**RIGHT, "correct": False, "fault": "server_error", "raw_reward": None, "fault_message": "gone"}


@contextmanager
def scripted(answers: list[tuple[int, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that gives these answers, repeating the last one; yields its URL and the bodies it receives."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            status, body = answers[min(len(bodies), len(answers)) - 1]
            payload = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", bodies
        finally:
            server.shutdown()
            thread.join()


def ask(url: str, task: KernelTask = TASK, source: str = "c", **settings: Any) -> EvalResult:
    async def evaluate() -> EvalResult:
        client = KernelEvalClient(url, backoff_s=0.01, **settings)
        try:
            return await client.evaluate(task, source, seed=7, num_correct_trials=3)
        finally:
            await client.aclose()
            await client.aclose()

    return asyncio.run(evaluate())


def test_an_outage_is_asked_again_until_there_is_a_verdict() -> None:
    with scripted([(200, OUTAGE), (503, {"error": {}}), (200, RIGHT)]) as (url, bodies):
        result = ask(url)
    assert (result.correct, result.raw_reward, len(bodies)) == (True, 1.0, 3)
    assert bodies[0]["seed_num"] == 7
    assert bodies[0]["num_correct_trials"] == 3
    assert (bodies[0]["original_model_src"], bodies[0]["custom_model_src"]) == ("r", "c")


def test_an_outage_that_lasts_is_raised_and_never_a_reward() -> None:
    with (
        scripted([(200, OUTAGE)]) as (url, bodies),
        pytest.raises(KernelEvalUnavailable, match="after 3 attempts: server_error: gone"),
    ):
        ask(url, attempts=3)
    assert len(bodies) == 3


def test_a_server_that_is_away_is_raised() -> None:
    with scripted([(200, RIGHT)]) as (url, _):
        pass
    with pytest.raises(KernelEvalUnavailable, match="ConnectError"):
        ask(url, attempts=2)


def test_what_cannot_be_judged_is_not_asked_twice() -> None:
    with scripted([(200, {**OUTAGE, "fault": "unsupported"})]) as (url, bodies), pytest.raises(KernelUnsupported):
        ask(url)
    assert len(bodies) == 1


def test_a_refused_request_is_the_callers_mistake() -> None:
    with (
        scripted([(401, {"error": {"message": "a key"}})]) as (url, bodies),
        pytest.raises(KernelEvalRejected, match="a key"),
    ):
        ask(url)
    assert len(bodies) == 1


def test_an_answer_that_is_no_verdict_is_an_outage() -> None:
    with scripted([(200, {"hello": 1})]) as (url, _), pytest.raises(KernelEvalUnavailable):
        ask(url, attempts=2)


def test_the_client_and_a_real_server_agree(server: Any, read_example: Callable[[str], str]) -> None:
    task = KernelTask(task_id="relu", prompt="", reference_src=read_example("relu_task"))
    result = ask(server.url, task, read_example("relu_candidate"))
    wrong = ask(server.url, task, read_example("relu_candidate").replace("0.0)", "1.0)"))
    assert (result.correct, result.raw_reward, result.trials) == (True, 1.0, 3)
    assert feedback(result) == "Correct on all 3 trials."
    assert (wrong.fault, wrong.raw_reward) == ("output_mismatch", 0.3)
    assert feedback(wrong).startswith("output_mismatch: ")


@pytest.mark.parametrize(
    ("answer", "template", "source"),
    [
        ("x = 1", None, "x = 1"),
        ("First\n```python\na = 1\n```\nbetter\n```python\nb = 2\n```\n", None, "b = 2\n"),
        ("```\na = 1\n```", "import x\n{kernel}\n{other}", "import x\na = 1\n\n{other}"),
        ("```python\ncut = off", None, "cut = off"),
        ("k = {'a': 1}", "{kernel}", "k = {'a': 1}"),
    ],
)
def test_the_candidate_is_the_last_block_in_its_template(answer: str, template: str | None, source: str) -> None:
    task = KernelTask(task_id="t", prompt="", reference_src="", candidate_template=template)
    assert candidate_source(task, answer) == source


def test_feedback_ends_with_the_end_of_the_traceback() -> None:
    details = {"traceback": "".join(f"line {i}\n" for i in range(40))}
    failed = EvalResult(
        **{
            **RIGHT,
            "correct": False,
            "fault": "runtime_error",
            "fault_message": "boom",
            "raw_reward": 0.1,
            "details": details,
        }
    )
    lines = feedback(failed).splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("runtime_error: boom", "line 28", "line 39")
