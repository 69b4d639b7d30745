"""Landlock: the process names its own threads where it may, and writes nothing else in /proc."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from weir.kernel_eval.sandbox import landlock

pytestmark = pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock")

CHILD = """
import json, os, sys, threading
from weir.kernel_eval.sandbox import landlock, syscalls

syscalls.forbid_inspection()
landlock.restrict(("/usr", "/lib", "/proc"), (), names_threads=sys.argv[1] == "named")
done = threading.Event()
thread = threading.Thread(target=done.wait)
thread.start()

def written(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666))  # as CUDA's driver opens it
    except OSError:
        return False
    return True

own = f"/proc/self/task/{thread.native_id}/comm"
paths = [own, "/proc/self/comm", "/proc/self/oom_score_adj", "/proc/sys/kernel/hostname"]
print(json.dumps([written(path) for path in paths]))
done.set()
"""


@pytest.mark.parametrize(("named", "expected"), [("named", [True, False, False, False]), ("unnamed", [False] * 4)])
def test_a_process_names_its_own_threads_and_writes_nothing_else_in_proc(named: str, expected: list[bool]) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, named], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected
