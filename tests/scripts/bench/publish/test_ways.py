"""`weir bench publish --ways` in small: every way publishes to a real engine, and the last line is JSON."""

from __future__ import annotations

import json

import pytest

from weir.scripts.bench.publish import ways


def test_every_way_is_measured_and_each_byte_is_sent_once(capsys: pytest.CaptureFixture[str]) -> None:
    ways.main(layers=1, rounds=1, engines=2)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    for way in ways.WAYS:
        assert 0 < figures[f"{way}_gate_closed_ms"] <= figures[f"{way}_ms"]
        share = figures[f"{way}_gb_s"] / figures["memcpy_gb_s"]
        assert figures[f"{way}_over_memcpy"] == pytest.approx(share, rel=0.1, abs=0.005)  # both are rounded
    assert figures["engines_serving"] == figures["engines"] == 2
    assert figures["engines_sent_over_model"] == pytest.approx(1.0, abs=0.05)
