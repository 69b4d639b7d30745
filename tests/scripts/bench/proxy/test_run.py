"""`weir bench proxy` in small: every call is answered at both levels, none is lost, and the last line is JSON."""

from __future__ import annotations

import json

import pytest

from weir.scripts.bench.proxy import run


def test_the_benchmark_of_the_proxy_counts_no_loss(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"CONCURRENCIES": {1: 8, 16: 32}, "ALTERNATIONS": 1, "NUM_STREAMS": 16, "LONG": 4, "NUM_LONG": 2}
    small["SCALING_CALLS"] = 32
    for name, value in small.items():
        monkeypatch.setattr(run, name, value)
    run.main(litellm=None)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["lost"] == 0
    wanted = {"tokens_cpu_us_c16", "passthrough_cpu_us_c16", "stream128_cpu_us_c16", "turn4_over_turn2"}
    wanted |= {"floor_cpu_us_c16", "tokens_over_floor_c16", "scaling_2"}
    assert wanted <= set(figures)
    assert all(figures[name] > 0 for name in wanted)
