"""The system's clock under a test's hand: `Clock(monkeypatch)` stands still until it is set or moved."""

from __future__ import annotations

import time

import pytest

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


class Clock:
    """What `time.time` and `time.time_ns` say in this process; monotonic time continues."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now_ns = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: self._now_ns)
        monkeypatch.setattr(time, "time", lambda: self._now_ns / 1e9)

    def move(self, seconds: float) -> None:
        """Go so far ahead, or back."""
        self._now_ns += int(seconds * 1e9)
