"""`weir bench ui`: every figure is measured, on a small store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weir.scripts.bench.ui.run import LONG_TURNS, main


def test_every_figure_is_measured_and_the_store_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(LONG_TURNS + 101, tmp_path / "store", downloaded_mb=8)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(figures) == {
        *("open_s", "renewal_s", "rss_mb", "first_page_p95_ms", "sessions_p95_ms", "filter_p95_ms", "sort_p95_ms"),
        *("session_200_p95_ms", "tokens_32k_p95_ms", "slow_download_added_mb"),
    }
    assert all(value > 0 for name, value in figures.items() if name != "slow_download_added_mb")
    assert (tmp_path / "store" / "catalog.sqlite").exists()
