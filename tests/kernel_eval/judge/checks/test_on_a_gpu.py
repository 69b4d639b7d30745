"""A judge on a GPU: what recorders, builders and assemblers make goes to a player, whose device is a CPU here.

Recorders, builders and assemblers are real contained processes. Where a device would run machine code, this process
runs the IR that it was made of; what the driver would be given is tested in `replay/device`.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.gpu import shared_memory
from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.forkserver import AskRunDelay, End, Exited, Lease, Leases, Ready, RunDelay, Spawn
from weir.kernel_eval.ipc.framing import ChannelClosed, receive, send
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import KernelIr
from weir.kernel_eval.judge.checks import proof, triton
from weir.kernel_eval.judge.checks.device_build import DeviceBuild
from weir.kernel_eval.judge.checks.outcome import CheckOutcome
from weir.kernel_eval.judge.checks.triton import TritonCheck
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.replay.device import kernels, player, tuning
from weir.kernel_eval.replay.ir_launches import IrLaunches
from weir.kernel_eval.tasks import reference
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return torch.relu(x) * 3
def get_inputs(): return [torch.randn(64, 40)]
def get_init_inputs(): return []
"""
CANDIDATE = """
import torch, triton, triton.language as tl

@triton.constexpr_function
def factor(n):
    return n + 1.0

CONFIGS = [triton.Config({"SIZE": size}, num_warps=warps) for size, warps in ((64, 2), (128, 4), (256, 8))]

DECORATOR
@triton.jit
def scaled(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, tl.maximum(x, 0.0) * factor(2), mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scaled[lambda given: (triton.cdiv(x.numel(), given["SIZE"]),)](x, out, x.numel(), SIZES)
        return out
"""
TUNED = {"DECORATOR": "@triton.autotune(CONFIGS, key=['n'])", ", SIZES": ""}
PLAIN = {"DECORATOR": "", "SIZES": "SIZE=128, num_warps=4"}


def candidate(parts: dict[str, str], old: str = "", new: str = "") -> str:
    source = CANDIDATE
    for word, text in parts.items():
        source = source.replace(word, text)
    return source.replace(old, new) if old else source


class PlayersHere:
    """A forkserver of players that are threads of this process."""

    def __init__(self) -> None:
        self.lease, self._theirs = socket.socketpair()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        message: Spawn | End | AskRunDelay
        with contextlib.suppress(ChannelClosed):
            while True:
                message, fds = receive(self._theirs, Spawn | End | AskRunDelay)  # type: ignore[arg-type]
                if isinstance(message, Spawn):
                    channel = socket.socket(fileno=fds[0])
                    threading.Thread(target=player.DevicePlayer(channel).serve, daemon=True).start()
                elif isinstance(message, AskRunDelay):
                    send(self._theirs, RunDelay(0.0))
                else:
                    ended = Exited(exit_code=0, signal=None, killed_by_us=False, cpu_s=0.0, max_rss_bytes=0)
                    send(self._theirs, ended)


def run_ir(these: kernels.DeviceKernels, launch: Any, storages: list[torch.Tensor]) -> None:
    kernel = these._kernels[launch.ir]
    assert kernel is not None
    launches = IrLaunches([KernelIr(launch.name, kernel.code.decode(), {})], 1 << 30, 60.0)
    launches.begin(exact_dots=True, marks=False)
    own = [storage.clone() for storage in storages]  # it runs on whole pieces of memory
    launches.run(msgspec.structs.replace(launch, ir=0), own)
    for storage, result in zip(storages, own, strict=True):
        storage.copy_(result)


@pytest.fixture(scope="module")
def device() -> Iterator[None]:
    """A CPU in the place of a GPU; kernels of more warps are faster on it."""
    assemble, same = DeviceBuild._assemble, lambda value, *_: value
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in (
            (torch.cuda, "synchronize", lambda *_: None),
            (torch, "set_default_device", lambda *_: None),
            (torch.Tensor, "cuda", same),
            (torch.nn.Module, "cuda", same),
            (reference, "moved", same),
            (tensor_arena, "_on_gpu", tensor_arena._on_host),
            (shared_memory, "attach", tensor_arena.HostMemory),
            (kernels.DeviceKernels, "launch", run_ir),
            (tuning.Tuning, "_time_us", lambda self, way, _: 1.0 / self._kernels._kernels[way.ir].form.num_warps),
        ):
            patch.setattr(owner, name, value)

        def with_ir(build: DeviceBuild, ir: KernelIr, built: Any) -> Any:
            kernel, report = assemble(build, ir, built)
            assert kernel.code.startswith(b"\x7fELF")
            return msgspec.structs.replace(kernel, code=ir.text.encode()), report

        patch.setattr(DeviceBuild, "_assemble", with_ir)
        yield


@pytest.fixture(scope="module")
def zygotes() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The control sockets of real forkservers of compilers and of programs."""
    with contextlib.ExitStack() as closing:
        controls = []
        for module, *more in (("compiler", "sm_90"), ("program",)):
            control, theirs = socket.socketpair()
            command = [sys.executable, "-m", f"weir.kernel_eval.zygotes.{module}", str(theirs.fileno()), "rlimits"]
            process = subprocess.Popen([*command, *more], pass_fds=(theirs.fileno(),))
            closing.callback(process.wait)
            closing.callback(process.kill)
            closing.enter_context(control)
            theirs.close()
            controls.append(control)
        for control in controls:
            receive(control, Ready)
        yield controls[0], controls[1]


def judged(zygotes: tuple[socket.socket, socket.socket], source: str, num_perf: int = 0, **more: Any) -> CheckOutcome:
    compilers, programs = zygotes
    leases = [PlayersHere().lease]
    for control in (compilers, compilers, compilers, programs):
        lease, theirs = socket.socketpair()
        send(control, Lease(), (theirs.fileno(),))
        theirs.close()
        leases.append(lease)
    limits = KernelEvalConfig(memory_bytes=1 << 30, call_timeout_s=30.0, compile_timeout_s=60.0).limits
    limits = msgspec.structs.replace(limits, gpu="GPU-none", target="sm_90")
    job = Job(
        reference_src=TASK,
        candidate_src=source,
        secret=b"secret",
        num_correct_trials=2,
        num_perf_trials=num_perf,
        limits=limits,
        **more,
    )
    task = Reference(TASK, limits.reference_timeout_s, on_gpu=True)
    task.draws_on_host = True
    with contextlib.closing(Leases(*leases)) as held:
        return TritonCheck(job).run(held, task)


@pytest.mark.usefixtures("device")
def test_what_is_tried_is_the_configuration_that_the_device_is_fastest_with(zygotes: Any) -> None:
    """Its kernel computes a constant by the candidate's own Python, which only recorders run."""
    outcome = judged(zygotes, candidate(TUNED), cross_checks=True)
    assert outcome.fault is None, outcome
    (kernel,) = outcome.details["compile"]["kernels"]
    assert (kernel["num_warps"], kernel["kernel"][:7]) == (8, "scaled:")
    assert outcome.details["cross_check"] == proof.AGREES
    assert outcome.details["drawn_on_host"] is True
    assert sum(outcome.details["inputs"].values()) == outcome.trials >= 3


@pytest.mark.usefixtures("device")
def test_wrong_answers_are_found_and_launches_refused_that_no_device_makes(zygotes: Any) -> None:
    wrong = judged(zygotes, candidate(PLAIN, "factor(2)", "factor(1)"))
    assert wrong.fault is Fault.OUTPUT_MISMATCH, wrong
    refused = judged(zygotes, candidate(PLAIN, "num_warps=4", "num_warps=64"))
    assert refused.fault is Fault.LAUNCH_FAILURE and "2048 threads" in refused.message, refused


@pytest.mark.usefixtures("device")
def test_what_is_timed_is_a_record_that_was_tried_on_hard_draws(zygotes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call, which is tried on the task's own draw alone, may be another one than those that follow."""
    timed: list[int] = []

    class Check:
        def __init__(self, *given: Any) -> None:
            timed.append(given[-1])

        def run(self, num_steps: int) -> None:
            del num_steps

    monkeypatch.setattr(triton, "SpeedCheck", Check)
    changes = "calls = iter((4, 8, 8, 8, 8))\n\nclass ModelNew"
    source = candidate(PLAIN, "num_warps=4", "num_warps=next(calls)").replace("class ModelNew", changes)
    outcome = judged(zygotes, source, num_perf=1)
    assert outcome.fault is None, outcome
    assert [kernel["num_warps"] for kernel in outcome.details["compile"]["kernels"]] == [4, 8]
    assert timed == [1]


@pytest.mark.gpu
def test_a_server_on_a_gpu_asks_a_cpu(start_server: Any, read_example: Any) -> None:
    with start_server(gpus=None, memory_bytes=1 << 34, call_timeout_s=30.0, cross_check=True) as server:
        reply = server.evaluate(read_example("relu_candidate"))
    assert reply["correct"] and reply["details"]["cross_check"] == proof.AGREES, reply
