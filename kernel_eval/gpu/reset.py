"""Resets GPUs through nvidia-smi, since NVML cannot. A GPU that any process computes on is never reset."""

from __future__ import annotations

import shutil
import subprocess

from weir.kernel_eval.gpu.status import GpuStatus, GpuStatusError, users

_TIMEOUT_S = 120.0


class GpuBusy(Exception):
    """A process computes on the GPU."""


def reset(gpu: GpuStatus) -> None:
    """Reset a GPU that nobody uses. Raises `GpuBusy`, or `GpuStatusError` if the reset fails. Blocks."""
    if pids := users(gpu):
        raise GpuBusy(f"GPU {gpu.index} is used by processes {', '.join(map(str, pids))}; end them first")
    program = shutil.which("nvidia-smi")
    if program is None:
        raise GpuStatusError("nvidia-smi is not installed, and no GPU can be reset without it")
    command = [program, "--gpu-reset", f"--id={gpu.uuid}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise GpuStatusError(f"nvidia-smi did not answer within {_TIMEOUT_S:g} s: a GPU may have hung") from error
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()[-500:]
        raise GpuStatusError(f"nvidia-smi --gpu-reset ended with {done.returncode}: {output}")
