"""A contained process is ended at any moment of its start, and nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import time

import psutil
import pytest

from weir.kernel_eval.sandbox import containment, ending
from weir.kernel_eval.sandbox.levels import SandboxLevel

MOMENTS = 100  # killed alone within its first 8 ms, bubblewrap leaves a process in four of ten


def below(mark: str) -> list[psutil.Process]:
    """The processes whose command line has the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            pass
    return found


@pytest.mark.parametrize("level", list(SandboxLevel), ids=str)
def test_nothing_is_left_of_a_process_that_ends_while_it_starts(level: SandboxLevel) -> None:
    if not containment.works(level):
        pytest.skip(f"the level {level} does not work on this machine")
    mark = f"mark-{os.getpid()}-{level}"
    command = containment.command(level, ("-c", "import time; time.sleep(600)", mark))
    environment = {**containment.environment(), "PATH": os.environ["PATH"]}
    for moment in range(MOMENTS):
        started = subprocess.Popen(command, env=environment, cwd="/", stdin=subprocess.DEVNULL)
        time.sleep(0.008 * moment / MOMENTS)
        ending.end(started.pid)
        assert started.wait() == -9
    psutil.wait_procs(below(mark), timeout=120)
    assert below(mark) == []


def test_what_has_ended_is_left_alone() -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    ending.end(ended.pid)
    assert ended.wait() == 0
    ending.end(ended.pid)
