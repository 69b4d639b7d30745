"""The order in which the tests run names files and folders that exist."""

from __future__ import annotations

from pathlib import Path

from support_run import FIRST, LAST

ROOT = Path(__file__).parents[2]


def test_what_is_to_begin_or_to_come_last_exists() -> None:
    assert [name for name in (*FIRST, *LAST) if not (ROOT / name).exists()] == []
