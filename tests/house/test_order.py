"""The order in which the tests run names files and folders that exist."""

from __future__ import annotations

from pathlib import Path

from support_run import LAST, LONG

ROOT = Path(__file__).parents[2]


def test_what_comes_late_exists() -> None:
    assert [name for name in (*LONG, *LAST) if not (ROOT / name).exists()] == []
