"""The kernel ends this process when the one that started it ends, however that happens (Linux, PR_SET_PDEATHSIG).

`kernel_eval` imports nothing of other parts and has its own in `sandbox/syscalls.py`.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: a child between fork and exec must not load libraries


def end_with_parent(number: signal.Signals = signal.SIGKILL, *, parent_pid: int | None = None) -> None:
    """Have the kernel send this process a signal when its parent ends; usable as `preexec_fn`.

    `parent_pid` is the parent as the starter knows it: where it died before the kernel was asked, this process exits
    with status 1 at once.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)
