"""CPU time and memory of the processes that a benchmark measures (Linux, /proc), and processes that only compute."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

_STATUS = Path("/proc/self/status")


def cpu_us_of(pids: Sequence[int]) -> float:
    """Time that the living threads of these processes have run, in microseconds.

    From schedstat, which counts nanoseconds; psutil's CPU times count ticks of 10 ms.
    """
    files = [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in files) / 1e3


@contextlib.contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Processes that do nothing but compute, until the end of the block."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def with_children(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *(child.pid for child in psutil.Process(pid).children())]


def rss_bytes_of(pid: int) -> int:
    """Resident memory of a process and of its children."""
    return sum(int(psutil.Process(one).memory_info().rss) for one in with_children(pid))


def reset_own_peak() -> int:
    """Restart the count of this process's peak memory; returns its resident bytes now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _own_bytes("VmRSS")


def own_peak_bytes() -> int:
    """Most resident memory that this process had since `reset_own_peak`."""
    return _own_bytes("VmHWM")


def _own_bytes(field: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
