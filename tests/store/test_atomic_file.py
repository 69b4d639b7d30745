"""Files that appear complete or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.store.atomic_file import written_aside


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_appears_when_it_is_complete_and_not_before(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with written_aside(path, durable=durable) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), written_aside(path) as aside:
        aside.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"), written_aside(tmp_path / "none" / "file"):
        pass
