"""`weir bench engine` in small: both sides decode, and the last line is JSON."""

from __future__ import annotations

import json

import pytest

from weir.engine.config import EngineConfig
from weir.scripts.bench.engine import run


def test_the_benchmark_of_the_engine_compares_both_sides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "BATCHES", (2,))
    run.main(None, EngineConfig(), rounds=1, new_tokens=8)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    compared = {"tok_s_b2", "tok_cpu_s_b2", "bare_b2", "bare_cpu_s_b2", "ratio_b2", "cpu_ratio_b2"}
    assert set(figures) == compared
    assert figures["tok_cpu_s_b2"] > 0
    assert figures["ratio_b2"] == pytest.approx(figures["tok_s_b2"] / figures["bare_b2"], rel=0.05)
