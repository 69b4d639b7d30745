"""`weir bench kernel-eval` in small: it evaluates what it says, and the last line is JSON."""

from __future__ import annotations

import json
import subprocess
import sys


def test_the_benchmark_of_evaluations_measures_as_many_as_it_was_asked_for() -> None:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "bench", "kernel-eval", "--evaluations", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["evaluations"] == 2
    assert figures["warm_p50_ms"] > 0
    assert figures["cold_over_warm"] > 1
