"""Ends a process that `containment.command` or an agent's enclosure started, also while bubblewrap starts.

For some milliseconds bubblewrap's child waits for a word of its parent before it asks to die with it. A parent that is
killed then leaves a child that waits for ever.
"""

from __future__ import annotations

import contextlib
import os
import signal

import psutil


def end(pid: int) -> None:
    """SIGKILL a child of this process, and what it started; who started it still has to wait for it."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError, psutil.Error):  # it has ended
        os.waitid(
            os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG
        )  # raises where the pid is not our child's any more
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # from here on it starts nothing
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.Error):
                child.kill()
        os.kill(pid, signal.SIGKILL)
