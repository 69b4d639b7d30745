"""KernelBench's form of a reply: what the client makes of it, and what this server adds to its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from support_http import QuietHandler, listening

from weir.kernel_eval.client import KernelEvalClient, KernelTask
from weir.kernel_eval.exec_result import decode_reply, exec_fields
from weir.kernel_eval.protocol import EvalReply, Fault

RIGHT = {
    "compiled": True,
    "correctness": True,
    "metadata": {"hardware": "NVIDIA H100", "correctness_trials": "(5 / 5)"},
    "runtime": 0.5,
    "runtime_stats": {"mean": 0.5, "std": 0.01, "num_trials": 100},
    "ref_runtime": 0.8,
}


def decoded(**fields: Any) -> EvalReply:
    return decode_reply(json.dumps(RIGHT | fields).encode())


def test_a_correct_result_is_rewarded_by_its_speed() -> None:
    reply = decoded()
    assert (reply.compiled, reply.correct, reply.fault, reply.trials, reply.mode) == (True, True, None, 5, "gpu")
    assert reply.speedup == pytest.approx(1.6)
    assert reply.raw_reward == pytest.approx(0.9)
    assert decoded(speedup=2.0).raw_reward == pytest.approx(1.3)
    assert decoded(raw_reward=0.25).raw_reward == 0.25
    assert decoded(ref_runtime=-1.0).speedup is None


@pytest.mark.parametrize(
    ("fields", "fault", "reward"),
    [
        ({"compiled": False, "metadata": {"compilation_error": "no"}}, Fault.COMPILE_ERROR, 0.0),
        ({"compiled": False, "metadata": {}}, Fault.COMPILE_ERROR, 0.0),
        ({"metadata": {"runtime_error": "boom"}}, Fault.RUNTIME_ERROR, 0.1),
        ({"metadata": {"correctness_issue": "off by one"}}, Fault.OUTPUT_MISMATCH, 0.1),
        ({"metadata": {}}, Fault.OUTPUT_MISMATCH, 0.1),
    ],
)
def test_a_failure_is_named_by_its_metadata(fields: dict[str, Any], fault: Fault, reward: float) -> None:
    reply = decoded(correctness=False, **fields)
    assert (reply.fault, reply.raw_reward, reply.speedup) == (fault, reward, None)
    assert reply.fault_message in ("no", "boom", "off by one", "the server gave no reason")


def test_the_client_takes_either_form_and_asks_again_for_none() -> None:
    answers: list[Any] = [None, RIGHT]

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.answer(200, json.dumps(answers.pop(0)).encode())

    async def ask(url: str) -> Any:
        client = KernelEvalClient(url, backoff_s=0.01)
        try:
            return await client.evaluate(KernelTask(task_id="t", prompt="p", reference_src="r"), "source")
        finally:
            await client.aclose()

    with listening(Handler) as url:
        result = asyncio.run(ask(url))
    assert (result.correct, result.speedup, answers) == (True, pytest.approx(1.6), [])


def test_a_result_that_lacks_a_field_is_no_verdict() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_reply(b'{"correctness": true}')


def test_the_fields_of_this_server_read_back_as_the_same_verdict() -> None:
    timing = {"mean_ms": 0.5, "std_ms": 0.1, "reference": {"mean_ms": 1.0}, "speedup": 2.0}
    given: dict[str, Any] = {"sandbox": "none", "mode": "gpu", "seconds": 1.0, "trials": 3}
    right = EvalReply(
        compiled=True,
        correct=True,
        fault=None,
        fault_message=None,
        raw_reward=1.3,
        speedup=2.0,
        **given,
        details={"timing": timing},
    )
    fault = Fault.OUTPUT_MISMATCH
    wrong = EvalReply(compiled=True, correct=False, fault=fault, fault_message="off", raw_reward=0.3, **given)
    assert exec_fields(right)["runtime"] == 0.5
    assert exec_fields(right)["ref_runtime"] == 1.0
    for reply in (right, wrong):
        fields = {"compiled": reply.compiled, **exec_fields(reply), "raw_reward": reply.raw_reward}
        again = decode_reply(json.dumps(fields).encode())
        for name in ("compiled", "correct", "fault", "fault_message", "raw_reward", "speedup"):
            assert getattr(again, name) == getattr(reply, name)
