"""`weir bench gate` with small numbers: its last line is JSON, and its error counts are zero."""

import json
import subprocess
import sys


def test_the_benchmark_of_the_gate_counts_no_error_and_no_mismatch() -> None:
    sizes = ["--agents", "12", "--updates", "2", "--held", "40", "--hold-s", "0", "--workers", "2"]
    command = [sys.executable, "-m", "weir.scripts.cli.main", "bench", "gate", *sizes]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["client_errors"], figures["token_mismatches"], figures["updates"]) == (0, 0, 2)
    assert figures["spanning_calls"] > 0
    assert figures["held_answered"] == figures["held"] == 40
