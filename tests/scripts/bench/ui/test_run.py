"""`weir bench ui`: every figure is measured, on a small store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from weir.scripts.bench.ui.run import LONG_TURNS, main
from weir.scripts.bench.ui.viewers import measure_viewers


def test_every_figure_is_measured_and_the_store_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(LONG_TURNS + 101, tmp_path / "store", downloaded_mb=8, viewed_calls=0, only_json=True)
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) == {
        *("open_s", "renewal_s", "rss_mb", "first_page_p95_ms", "sessions_p95_ms", "filter_p95_ms", "sort_p95_ms"),
        *("session_200_p95_ms", "tokens_32k_p95_ms", "slow_download_added_mb"),
        *("tokens_32k_drawn_ms", "tokens_32k_scroll_fps", "load_before"),
    }
    may_be_none_or_less = {
        *("slow_download_added_mb", "load_before"),
        *(() if shutil.which("chromium") else ("tokens_32k_drawn_ms", "tokens_32k_scroll_fps")),
    }
    assert all(value > 0 for name, value in figures.items() if name not in may_be_none_or_less)
    assert (tmp_path / "store" / "catalog.sqlite").exists()


def test_viewers_are_measured_beside_a_proxy() -> None:
    figures = measure_viewers(160)
    assert figures["viewers"] == 50
    costs = ("proxy_cpu_us", "proxy_cpu_us_viewed", "proxy_p99_ms", "proxy_p99_ms_viewed", "page_cpu_us_per_call")
    assert all(figures[name] > 0 for name in costs)
    assert figures["proxy_cpu_added_share"] == figures["proxy_cpu_us_viewed"] / figures["proxy_cpu_us"] - 1
