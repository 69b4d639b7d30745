"""What nvidia-smi says of the GPUs of this machine. `parse` is pure; `read` asks.

A figure that a GPU does not have is None. A GPU with uncorrected memory errors, or that answers with an error, is not
healthy: what it computes is no verdict on anybody.

Resetting GPUs through nvidia-smi. A GPU that any process computes on is never reset.

Not here: which GPUs a server uses, and that it stops using one first.
"""

from __future__ import annotations

import csv
import shutil
import subprocess

import msgspec

_FIELDS = (
    *("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "utilization.gpu", "temperature.gpu"),
    "ecc.errors.uncorrected.volatile.total",
)
_TIMEOUT_S = 30.0


class GpuStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. Sizes are MiB as nvidia-smi gives them."""

    index: int
    uuid: str
    name: str
    driver: str
    memory_total_mib: int | None
    memory_used_mib: int | None
    utilization_percent: int | None
    temperature_c: int | None
    uncorrected_errors: int | None  # since the driver was loaded

    @property
    def healthy(self) -> bool:
        """Whether it can be trusted to compute."""
        return not self.uncorrected_errors and self.memory_total_mib is not None


class GpuStatusError(Exception):
    """nvidia-smi could not be asked, or failed."""


def parse(printed: str) -> list[GpuStatus]:
    """From what `nvidia-smi --query-gpu=… --format=csv,noheader,nounits` prints. Lines of another form are refused."""
    found = []
    for row in csv.reader(printed.splitlines(), skipinitialspace=True):
        if not row:
            continue
        if len(row) != len(_FIELDS) or not row[0].isdigit():
            raise GpuStatusError(f"nvidia-smi printed {', '.join(row)!r}, expected {len(_FIELDS)} fields for each GPU")
        total, used, utilization, temperature, errors = map(_number, row[4:])
        found.append(
            GpuStatus(
                index=int(row[0]),
                uuid=row[1].strip(),
                name=row[2].strip(),
                driver=row[3].strip(),
                memory_total_mib=total,
                memory_used_mib=used,
                utilization_percent=utilization,
                temperature_c=temperature,
                uncorrected_errors=errors,
            )
        )
    return found


def read() -> list[GpuStatus]:
    """All GPUs of this machine; none where nvidia-smi is not installed. Raises `GpuStatusError`. Blocks."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise GpuStatusError(f"nvidia-smi did not answer within {_TIMEOUT_S:g} s: a GPU may have hung") from error
    if answer.returncode != 0:
        raise GpuStatusError(f"nvidia-smi ended with {answer.returncode}: {answer.stdout.strip()[-500:]}")
    return parse(answer.stdout)


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


_RESET_TIMEOUT_S = 120.0


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
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_RESET_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise GpuStatusError(f"nvidia-smi did not answer within {_RESET_TIMEOUT_S:g} s: a GPU may have hung") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-500:]
        raise GpuStatusError(f"nvidia-smi {arguments[0]} ended with {done.returncode}: {said}")
    return done.stdout
