"""The order in which the tests run names what exists, and a limit of time leaves out what has not begun."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support_run import LAST, LONG, TimeLimit, in_order

ROOT = Path(__file__).parents[2]


def test_what_comes_late_exists() -> None:
    assert [name for name in (*LONG, *LAST) if not (ROOT / name).exists()] == []


def test_files_that_need_seconds_come_first_and_the_rest_as_listed() -> None:
    names = [LAST[-1] + "test_a.py", LONG[1], "tests/zoo/test_b.py", LONG[0], "tests/zoo/test_a.py"]
    items: list[Any] = [SimpleNamespace(nodeid=f"{name}::test") for name in names]
    expected = ["tests/zoo/test_b.py", "tests/zoo/test_a.py", LONG[0], LONG[1], LAST[-1] + "test_a.py"]
    assert [item.nodeid for item in in_order(items)] == [f"{name}::test" for name in expected]


def test_what_has_not_begun_in_time_is_skipped_with_the_reason() -> None:
    TimeLimit(1e9).pytest_runtest_setup()
    with pytest.raises(pytest.skip.Exception, match="not begun within the 0 s of --begin-within"):
        TimeLimit(0.0).pytest_runtest_setup()
