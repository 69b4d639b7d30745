"""Reports of the training slot: one JSON object a line, whichever thread reports."""

from __future__ import annotations

import json
import subprocess
import sys

REPORT = """
import threading
from weir.scripts.live.slot_process import _report

def report(name):
    for number in range(3000):
        _report({"step": f"{name}-{number}"})

threads = [threading.Thread(target=report, args=(name,)) for name in "abc"]
for thread in threads:
    thread.start()
"""


def test_reports_of_several_threads_do_not_mix() -> None:
    done = subprocess.run([sys.executable, "-u", "-c", REPORT], capture_output=True, text=True, check=True)
    steps = [json.loads(line)["step"] for line in done.stdout.splitlines()]
    assert len(steps) == len(set(steps)) == 9000
