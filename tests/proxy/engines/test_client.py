from __future__ import annotations

import pytest

from weir.proxy.engines.client import nap_s


def test_a_young_stream_is_left_to_the_kernel_as_long_as_it_has_run() -> None:
    assert nap_s(0.04, 0.0, 1000.0) == 0.0
    assert nap_s(0.04, 0.01, 1000.013) == 0.01


def test_streams_that_run_for_long_wake_up_at_one_time() -> None:
    wakes = [now_s + nap_s(0.04, 1.0, now_s) for now_s in (1000.001, 1000.02, 1000.039)]
    assert wakes == pytest.approx([1000.0425] * 3)


def test_a_timer_that_is_early_by_a_millisecond_is_no_tick_of_its_own() -> None:
    assert 1000.0415 + nap_s(0.04, 1.0, 1000.0415) == pytest.approx(1000.0825)


def test_without_an_interval_no_stream_waits() -> None:
    assert nap_s(0.0, 1.0, 1000.0) == 0.0
