"""`weir bench publish --ways` in small: every way publishes to a real engine, and the last line is JSON."""

from __future__ import annotations

import json

import pytest

from weir.scripts.bench.publish import ways


def test_every_way_is_measured_and_no_byte_is_sent_more_than_twice(capsys: pytest.CaptureFixture[str]) -> None:
    ways.main(layers=1, rounds=1, engines=4)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    for way in ways.WAYS:
        assert 0 < figures[f"{way}_gate_closed_ms"] <= figures[f"{way}_ms"]
        share = figures[f"{way}_gb_s"] / figures["memcpy_gb_s"]
        assert figures[f"{way}_over_memcpy"] == pytest.approx(share, rel=0.1, abs=0.005)  # both are rounded
    assert 0 < figures["delta_sent_over_model"] < 0.1 < figures["tensor_sent_over_model"] < 1.01
    assert figures["engines"] == figures["engines_serving_by_tensor"] == figures["engines_serving_by_sockets"] == 4
    assert figures["engines_tensor_sent_over_model"] == pytest.approx(1.0, abs=0.05)
    assert 1.9 < figures["engines_sockets_sent_over_model"] < 2.2, "to two of the four, which pass it on"
    assert figures["by_ranks_gb_s"] > 0
    assert figures["by_ranks_gate_closed_ms"] < figures["by_ranks_ms"]
    assert 1.9 < figures["by_ranks_sent_over_model"] < 2.2
    for way in ways.FLOORS:
        floor = figures[f"{way}_floor_over_memcpy"] * figures["memcpy_gb_s"]
        assert figures[f"{way}_over_floor"] * floor == pytest.approx(figures[f"{way}_gb_s"], rel=0.1, abs=0.01)
