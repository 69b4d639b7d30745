"""A process ends with the one that started it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

CHILD = """
import os, signal, sys
from weir.store.parent_death import end_with_parent
end_with_parent(parent_pid=int(sys.argv[1]))
print(os.getpid(), flush=True)
signal.pause()
"""
PARENT = f"""
import os, signal, subprocess, sys
subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())])
signal.pause()
"""


def test_a_child_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pidfd = os.pidfd_open(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert select.select([pidfd], [], [], 10)[0], "the child outlived its parent"
    os.close(pidfd)


def test_a_child_whose_parent_is_gone_already_does_not_start() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "1"], capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stdout == b""
