"""`weir simulate`, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.scripts.launch.errors import UsageError

SMALL = """
[devices.gpu]
flops = 989e12
bandwidth = 3.35e12
memory_gb = 80

[[members]]
kind = "gpu"
count = 4

[rules]
batch = 16
train_members = 2

[workload]
median = 200
limit = 1000
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.toml"
    file.write_text(SMALL)
    return file


def test_all_policies_are_simulated_and_drawn(cluster: Path, tmp_path: Path) -> None:
    words = ["simulate", str(cluster), "--updates", "4", "--warmup", "1", "--gantt", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert set(figures) == {"sync_colocated", "disaggregated", "one_step_off", "tags"}
    assert figures["tags"]["updates"] == 3
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"{name}.svg" for name in figures}


def test_a_sweep_has_a_run_for_each_size(cluster: Path) -> None:
    words = ["simulate", str(cluster), "--policy", "tags", "--updates", "3", "--sizes", "2,8", "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert set(json.loads(done.stdout.splitlines()[-1])) == {"tags_2", "tags_8"}


def test_wrong_use_says_what_to_do(cluster: Path) -> None:
    for words, message in (([], "needs a description"), ([str(cluster), "--sizes", "8;9"], "separated by commas")):
        done = CliRunner().invoke(app, ["simulate", *words])
        assert isinstance(done.exception, UsageError)
        assert message in str(done.exception)
