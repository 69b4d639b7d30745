"""The zygote of GPU workers on a machine without a GPU, with a driver that finds no device."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
import triton

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.ipc.forkserver import Lease, Ready
from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.sandbox import containment

LIMITS = msgspec.structs.replace(KernelEvalConfig().limits, gpu="GPU-0a")


def build_driver(folder: Path) -> None:
    """A libcuda.so.1 with every function that Triton's part in C names, each of which finds no device."""
    source = (Path(triton.__file__).parent / "backends" / "nvidia" / "driver.c").read_text()
    names = sorted(set(re.findall(r"\b(cu[A-Z]\w+)\(", source)))
    (folder / "driver.c").write_text("\n".join(f"int {name}(void) {{ return 100; }}" for name in names))
    command = ["gcc", "-shared", "-fPIC", str(folder / "driver.c"), "-o", str(folder / "libcuda.so.1")]
    subprocess.run(command, check=True)


@pytest.fixture(params=["rlimits", "bubblewrap"])
def lease(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    if torch.cuda.is_available() or shutil.which("gcc") is None:
        pytest.skip("needs a C compiler, and no GPU: where there is one, candidates are judged on it")
    build_driver(tmp_path)
    level = containment.SandboxLevel(request.param)
    if not containment.works(level):
        pytest.skip(f"{level} does not work here")
    control, theirs = socket.socketpair()
    ours, its_lease = socket.socketpair()
    environment = {**containment.environment(), "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(tmp_path)}
    arguments = ("-m", "weir.kernel_eval.zygotes.gpu_worker", str(theirs.fileno()), level.value, "sm_90")
    command = containment.command(level, arguments, on_gpu=True)
    if level is containment.SandboxLevel.BUBBLEWRAP:
        shows_driver = ["--ro-bind", str(tmp_path), str(tmp_path)]
        command = [*command[: command.index("--remount-ro")], *shows_driver, *command[command.index("--remount-ro") :]]
    with control, ours, subprocess.Popen(command, pass_fds=(theirs.fileno(),), env=environment) as zygote:
        theirs.close()
        receive(control, Ready)
        send(control, Lease(), (its_lease.fileno(),))
        its_lease.close()
        yield ours
        zygote.kill()


BUILDS_ONCE = """
import subprocess
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.zygotes.gpu_worker import _build_launcher

_build_launcher(SandboxLevel.RLIMITS)
subprocess.check_call = None  # as in a worker, which can start no program
from triton.backends.nvidia.driver import CudaDriver, CudaUtils

assert CudaUtils() is CudaUtils() and callable(CudaDriver().utils.load_binary)
print("built once")
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_worker_that_asks_for_triton_s_driver_builds_nothing(tmp_path: Path) -> None:
    """Triton makes its driver at the first launch, in the worker."""
    build_driver(tmp_path)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", BUILDS_ONCE], capture_output=True, text=True, env=environment)
    assert run.stdout == "built once\n", run.stderr


def test_a_worker_is_forked_and_contained_and_that_it_reaches_no_gpu_is_no_fault_of_a_candidate(
    lease: socket.socket,
) -> None:
    worker = WorkerChannel(lease, LIMITS, Deadline(60.0))
    try:
        with pytest.raises(FaultDetected) as raised:
            worker.prepare(LIMITS.load_timeout_s)
    finally:
        worker.end()
        worker.close()
    assert raised.value.fault is Fault.GPU_UNHEALTHY
    assert "CUDA" in raised.value.message, raised.value.details
