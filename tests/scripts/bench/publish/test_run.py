"""`weir bench publish` over the small random model: its last line is JSON, and every rebuilt file was the same."""

import json
import subprocess
import sys


def test_the_benchmark_of_publishing_says_how_large_and_how_fast_differences_are() -> None:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "bench", "publish", "--steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *steps, figures = map(json.loads, done.stdout.splitlines())
    assert len(steps) == 2
    assert figures["model_bytes"] > 3_000_000
    assert 0 < figures["delta_share"] == max(step["delta_share"] for step in steps) < 0.05
    assert figures["encode_apply_gb_per_s"] < min(figures["encode_gb_per_s"], figures["apply_gb_per_s"])
