"""Signs of life: who counts as frozen, and what silences nobody."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weir.trainer.launch import heartbeats
from weir.trainer.launch.heartbeats import PREFIX, SILENT_LOOKS, Heartbeats, beat


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "BEAT_S", 0.01)


def until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.01)


def beats_of(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0


def test_only_a_rank_that_is_silent_for_many_looks_is_frozen(tmp_path: Path) -> None:
    beat(tmp_path, 0)
    (tmp_path / f"{PREFIX}1").touch()  # of a rank that was stopped
    until((tmp_path / f"{PREFIX}0").exists)
    seen = Heartbeats(tmp_path)
    for look in range(SILENT_LOOKS + 1):
        assert seen.frozen() == ([] if look < SILENT_LOOKS else ["rank 1"])
        before = beats_of(tmp_path / f"{PREFIX}0")
        until(lambda before=before: beats_of(tmp_path / f"{PREFIX}0") != before)  # type: ignore[misc]


def test_a_rank_whose_file_cannot_be_written_for_a_while_beats_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    touch, refused = Path.touch, []

    def full(path: Path, *more: Any, **settings: Any) -> None:
        if len(refused) < 3:
            refused.append(path)
            raise OSError(errno.ENOSPC, "No space left on device")
        touch(path, *more, **settings)

    monkeypatch.setattr(Path, "touch", full)
    beat(tmp_path, 4)
    until((tmp_path / f"{PREFIX}4").exists)
    assert "No space left on device" in caplog.text
    before = beats_of(tmp_path / f"{PREFIX}4")
    until(lambda: beats_of(tmp_path / f"{PREFIX}4") != before)
