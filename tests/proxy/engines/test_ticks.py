"""The ticks that streams share."""

from __future__ import annotations

import pytest

from weir.proxy.engines.ticks import until_tick_s


def test_streams_wake_up_at_one_time_that_an_early_timer_does_not_double() -> None:
    wakes = [now_s + until_tick_s(0.04, now_s) for now_s in (1000.001, 1000.02, 1000.039)]
    assert wakes == pytest.approx([1000.0425] * 3)
    assert 1000.0415 + until_tick_s(0.04, 1000.0415) == pytest.approx(1000.0825)
