"""`weir bench round` in small: the seconds of the steps add up to the round's, and the last line is JSON."""

from __future__ import annotations

import json
import subprocess
import sys


def test_the_benchmark_of_rounds_tells_where_the_time_goes() -> None:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "bench", "round", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    seconds = figures["seconds"]
    assert {"judge", "train", "checkpoint", "publish"} <= set(seconds)
    others = figures["round_s"] - seconds["judge"] - seconds["train"] - seconds["load"]
    assert 0 < figures["overhead_share"] <= others / figures["round_s"] + 0.01
