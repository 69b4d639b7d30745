"""`weir bench gate` with small numbers: its last line is JSON, and its error counts are zero."""

import json
import subprocess
import sys

from weir.scripts.bench.gate.herd import displacements


def test_the_benchmark_of_the_gate_counts_no_error_and_no_mismatch() -> None:
    sizes = ["--agents", "12", "--updates", "2", "--held", "600", "--hold-s", "0", "--workers", "2", "--load", "1"]
    command = [sys.executable, "-m", "weir.scripts.cli.main", "bench", "gate", *sizes]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["client_errors"], figures["token_mismatches"], figures["updates"]) == (0, 0, 2)
    assert figures["spanning_calls"] > 0
    assert figures["held_answered"] == figures["held"] == 600
    assert (figures["held_generated_twice"], figures["load"]) == (0, 1)
    assert figures["held_kb_per_call"] > 0
    assert figures["held_first_byte_p99_over_work"] > 0.9, "engines cannot work faster than they do"


def test_displacements_are_shares_of_the_number_of_calls() -> None:
    assert displacements([10, 20, 30, 40]) == [0, 0, 0, 0]
    assert displacements([20, 10, 30, 40]) == [0.25, 0.25, 0, 0]
    assert displacements([40, 10, 20, 30]) == [0.25, 0.25, 0.25, 0.75]
