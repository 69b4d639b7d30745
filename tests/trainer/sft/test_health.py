"""Health figures of a cold start, against values computed by hand, in the version folder and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support_sft import renderer
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.data.rows import RowMaker
from weir.trainer.sft.health import health


def row(length: int, num_targets: int) -> SupervisedRow:
    return SupervisedRow(ids=np.zeros(length, np.int32), targets=np.arange(length) >= length - num_targets)


def test_figures_are_those_of_the_rows_and_losses_are_weighted_by_targets(tiny_model_dir: Path) -> None:
    maker = RowMaker(tiny_model_dir, renderer, 99)
    maker.num_too_long = 3
    rows = [row(10, 2), row(20, 4), row(30, 10)]
    batches = [[rows[0], rows[1]], [rows[2]], [rows[2]], [rows[0], rows[1]]]
    found = health(rows, maker, batches, [4.0, 2.0, 1.0, 0.5])
    assert found.valid_token_share == pytest.approx(16 / 60)
    assert (found.num_tokens, found.length_min, found.length_median, found.length_max) == (60, 10, 20.0, 30)
    assert (found.length_p95, found.targets_median, found.rows_too_long) == (pytest.approx(29.0), 4.0, 3)
    assert found.epoch_losses == pytest.approx([(6 * 4 + 10 * 2) / 16, (10 * 1 + 6 * 0.5) / 16])


def test_the_command_prints_the_figures_that_the_version_folder_holds(tiny_model_dir: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out"
    lines = [{"text": "def f(x): return x\n" * 40}, {"text": "one two three"}]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["sft", "--data", str(data), "--model", str(tiny_model_dir), "--out", str(out), "--epochs", "2"]
    done = CliRunner().invoke(app, [*command, "--max-tokens", "100", "--json"], catch_exceptions=False)
    printed = json.loads(done.stdout)
    kept = json.loads((out / "metrics.json").read_text())
    assert {name: printed[name] for name in kept} == kept
    assert set(printed) == {*kept, "out", "seconds"}
    assert (kept["texts_cut"], kept["rows_too_long"], kept["length_max"]) == (1, 0, 100)
    assert len(kept["epoch_losses"]) == 2
    assert kept["epoch_losses"][1] < kept["epoch_losses"][0]
    assert 0.9 < kept["valid_token_share"] < 1.0  # of a text all tokens but the first
