"""A CPU's second opinion on the record of a GPU: the IR of the proof's kernels, played by real contained processes.

Without a GPU the record is written down here as a GPU's recorder would write it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.ipc.forkserver import Lease, Leases, Ready
from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.trace import Launch, Named, Place, Plain, Storage, Trace
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.checks.proof import AGREES, Kernels, second_opinion
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return torch.relu(x) * 3
def get_inputs(): return [torch.randn(64)]
def get_init_inputs(): return []
"""
KERNELS = """
import triton, triton.language as tl
@triton.jit
def scaled(x_ptr, out_ptr, n, DTYPE: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, (BODY).to(DTYPE), mask=at < n)
"""
RIGHT, WRONG, UNKNOWN = "tl.maximum(x, 0.0) * 3", "tl.maximum(x, 0.0) * 2", "tl.no_such_function(x)"
X, OUT = Place(0, "float32", (64,), (1,), 0), Place(1, "float32", (64,), (1,), 0)
GIVEN = {"x_ptr": X, "out_ptr": OUT, "n": Plain(64), "DTYPE": Named("triton", "fp32"), "SIZE": Plain(64)}
LAUNCH = Launch("scaled", 3, (1,), GIVEN, {"num_warps": Plain(2)})
RECORD = Trace((Storage("input", 0, 256), Storage("fresh", 0, 256)), (LAUNCH,), (OUT,))


@pytest.fixture(scope="module")
def leases() -> Iterator[Leases]:
    """Leases on a real forkserver of compilers."""
    control, theirs = socket.socketpair()
    pairs = [socket.socketpair() for _ in range(5)]
    command = [sys.executable, "-m", "weir.kernel_eval.zygotes.compiler", str(theirs.fileno()), "rlimits", "sm_90"]
    with control, subprocess.Popen(command, pass_fds=(theirs.fileno(),)) as process:
        theirs.close()
        receive(control, Ready)
        for _, end in pairs:
            send(control, Lease(), (end.fileno(),))
            end.close()
        held = Leases(*(ours for ours, _ in pairs))
        yield held
        held.close()
        process.kill()


def opinion(leases: Leases, body: str) -> str:
    limits = KernelEvalConfig().limits
    job = Job(
        reference_src=TASK, candidate_src="", secret=b"secret", num_correct_trials=1, num_perf_trials=0, limits=limits
    )
    reference = Reference(TASK, limits.reference_timeout_s)
    trials: Any = SimpleNamespace(
        first=RECORD, reference=reference, model=reference.build([], 1), state=[], deadline=Deadline(600.0)
    )
    return second_opinion(job, leases, trials, Kernels(KERNELS.replace("BODY", body)))


def test_a_right_answer_is_found_right_by_a_cpu_too(leases: Leases) -> None:
    assert opinion(leases, RIGHT) == AGREES


def test_a_cpu_that_finds_another_answer_refuses_the_candidate(leases: Leases) -> None:
    with pytest.raises(FaultDetected, match="a CPU that plays the IR of the same kernels"):
        opinion(leases, WRONG)


def test_a_kernel_without_ir_for_a_cpu_gets_no_opinion_and_why(leases: Leases) -> None:
    found = opinion(leases, UNKNOWN)
    assert found.startswith("no opinion: ") and "no_such_function" in found


@pytest.mark.gpu
def test_a_server_on_a_gpu_asks_a_cpu(start_server: Any, read_example: Any) -> None:
    with start_server(gpus=None, memory_bytes=1 << 34, call_timeout_s=30.0, cross_check=True) as server:
        reply = server.evaluate(read_example("relu_candidate"))
    assert reply["correct"] and reply["details"]["cross_check"] == AGREES, reply
