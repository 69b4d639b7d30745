"""Reports to the controller: one JSON object a line, whichever thread reports and whatever else prints."""

from __future__ import annotations

import json
import subprocess
import sys

REPORT = """
import subprocess
import threading
from weir.scripts.live.reports import Reports

reports = Reports()
subprocess.run(["echo", "a process prints"], check=True)

def report(name):
    for number in range(3000):
        print("a hook prints")
        reports.send({"step": f"{name}-{number}"})

threads = [threading.Thread(target=report, args=(name,)) for name in "abc"]
for thread in threads:
    thread.start()
"""


def test_reports_of_several_threads_and_prints_do_not_mix() -> None:
    done = subprocess.run([sys.executable, "-u", "-c", REPORT], capture_output=True, text=True, check=True)
    steps = [json.loads(line)["step"] for line in done.stdout.splitlines()]
    assert len(steps) == len(set(steps)) == 9000
    assert done.stderr.count("a hook prints") == 9000 and "a process prints" in done.stderr
