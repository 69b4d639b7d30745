"""`weir bench phases` with small numbers: its last line is JSON, and its error counts are zero."""

import json
import subprocess
import sys


def test_engines_leave_and_return_under_agents_and_no_error_and_no_mismatch_is_counted() -> None:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "bench", "phases", "--agents", "6", "--changes", "12"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["client_errors"], figures["token_mismatches"], figures["member_failures"]) == (0, 0, 0), done.stdout
    assert (figures["phase_changes"], figures["rounds"]) >= (12, 3)
    assert figures["calls"] > 0 and figures["spanning_calls"] > 0
    assert figures["engine_load_s"] <= figures["load_s"]
    assert 0 < figures["hold_p50"] <= figures["hold_p99"] <= figures["hold_max"]
    assert 0 < figures["idle_share"] < 1
