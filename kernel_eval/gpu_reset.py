"""Resetting GPUs through nvidia-smi. A GPU that any process computes on is never reset.

Not here: which GPUs a server uses, and that it stops using one first.
"""

from __future__ import annotations

import shutil
import subprocess

from weir.kernel_eval.gpu_status import GpuStatus, GpuStatusError, read

_TIMEOUT_S = 120.0


class GpuBusy(Exception):
    """A process computes on the GPU."""


def find(index: int) -> GpuStatus | None:
    """The GPU of that number; None where there is none. Raises `GpuStatusError`. Blocks."""
    return next((gpu for gpu in read() if gpu.index == index), None)


def users(gpu: GpuStatus) -> list[int]:
    """Processes that compute on a GPU, by pid. Raises `GpuStatusError`. Blocks."""
    printed = _run("--query-compute-apps=pid", "--format=csv,noheader,nounits", f"--id={gpu.uuid}")
    return [int(line) for line in printed.split() if line.isdigit()]


def reset(gpu: GpuStatus) -> None:
    """Reset a GPU that nobody uses. Raises `GpuBusy`, or `GpuStatusError` where it cannot be done. Blocks."""
    if pids := users(gpu):
        raise GpuBusy(f"GPU {gpu.index} is used by processes {', '.join(map(str, pids))}; end them first")
    _run("--gpu-reset", f"--id={gpu.uuid}")


def _run(*arguments: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise GpuStatusError("nvidia-smi is not installed: there is no GPU that could be asked")
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise GpuStatusError(f"nvidia-smi did not answer within {_TIMEOUT_S:g} s: a GPU may have hung") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-500:]
        raise GpuStatusError(f"nvidia-smi {arguments[0]} ended with {done.returncode}: {said}")
    return done.stdout
