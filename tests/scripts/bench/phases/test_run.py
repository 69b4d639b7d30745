"""`weir bench phases` with small numbers: its last line is JSON, and its error counts are zero."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from weir.scripts.cli.main import app


def test_engines_leave_and_return_under_agents_and_no_error_and_no_mismatch_is_counted() -> None:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "bench", "phases", "--agents", "6", "--changes", "12"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["client_errors"], figures["token_mismatches"], figures["member_failures"]) == (0, 0, 0), done.stdout
    assert (figures["phase_changes"], figures["rounds"]) >= (12, 3)
    assert figures["groups"] == 3 * figures["rounds"], "each round takes a batch"
    assert (figures["groups_twice"], figures["groups_lost"], figures["gates_left_closed"]) == (0, 0, 0), done.stdout
    assert figures["calls"] > 0 and figures["spanning_calls"] > 0
    assert figures["engine_load_s"] <= figures["load_s"]
    assert 0 < figures["hold_p50"] <= figures["hold_p99"] <= figures["hold_max"]
    assert 0 < figures["idle_share"] < 1


def test_the_benchmark_of_the_gate_has_the_phases_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[int, int, bool]] = []
    monkeypatch.setattr("weir.scripts.bench.phases.run.main", lambda *given: ran.append(given))
    done = CliRunner().invoke(app, ["bench", "gate", "--phases", "--agents", "16"], catch_exceptions=False)
    assert done.exit_code == 0
    assert ran == [(16, 100, False)]
