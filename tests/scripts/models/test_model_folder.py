"""A model folder appears when it is complete, whatever ended the process that made it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from weir.scripts.launch.errors import UsageError
from weir.scripts.models.model_folder import GetFailed, Source, model_folder

SOURCE = Source(name="tiny", revision="1")

KILLED = """
import os, pathlib, signal, sys
from weir.scripts.models.model_folder import Source, model_folder

def make(out):
    (out / ".download").mkdir()
    (out / ".download" / "part").write_text("fetched")
    os.kill(os.getpid(), signal.SIGKILL)

model_folder(pathlib.Path(sys.argv[1]), Source(name="tiny", revision="1"), make, print)
"""
SLOW = """
import pathlib, sys
from weir.scripts.models.model_folder import Source, model_folder

def make(out):
    print("making", flush=True)
    sys.stdin.read()
    (out / "config.json").write_text("whole")
    return {}

def say(line):
    print(line, flush=True)

print(model_folder(pathlib.Path(sys.argv[1]), Source(name="tiny", revision="1"), make, say))
"""


def make_whole(out: Path) -> dict[str, str]:
    (out / "config.json").write_text("whole")
    (out / "inner").mkdir()
    (out / "inner" / "more").write_text("more")
    return {}


def make_nothing(out: Path) -> dict[str, str]:
    pytest.fail("it was not to be made")


def ignore(line: str) -> None:
    pass


def test_a_folder_is_made_once_and_then_verified(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    assert model_folder(folder, SOURCE, make_whole, ignore)
    assert not model_folder(folder, SOURCE, make_nothing, ignore)
    assert (folder / "inner" / "more").read_text() == "more"
    files = json.loads((folder / "weir_source.json").read_text())["files"]
    assert sorted(files) == ["config.json", "inner/more"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.lock", "model"]


def test_a_kill_leaves_no_folder_and_the_next_get_continues_with_what_was_fetched(tmp_path: Path) -> None:
    folder, seen = tmp_path / "model", []

    def make(out: Path) -> dict[str, str]:
        seen.append((out / ".download" / "part").read_text())
        return make_whole(out)

    killed = subprocess.run([sys.executable, "-c", KILLED, folder])
    assert killed.returncode == -9 and not folder.exists()
    assert model_folder(folder, SOURCE, make, ignore)
    assert seen == ["fetched"]
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "inner", "weir_source.json"]


def test_what_another_source_left_aside_is_not_used(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, tmp_path / "model"])

    def make(out: Path) -> dict[str, str]:
        assert not list(out.iterdir())
        return make_whole(out)

    assert model_folder(tmp_path / "model", Source(name="tiny", revision="2"), make, ignore)


def test_two_processes_make_a_folder_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW, str(tmp_path / "model")]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "making\n"
    second = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert second.stdout is not None
    assert second.stdout.readline().startswith("waiting for another process")
    assert first.communicate("")[0].endswith("True\n")
    assert second.communicate()[0] == "False\n"


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert model_folder(tmp_path / "model", SOURCE, make_whole, ignore)


def test_a_folder_with_other_files_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty, and `weir model get` did not make it: nothing was changed"):
        model_folder(tmp_path, SOURCE, make_nothing, ignore)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_of_another_source_is_refused(tmp_path: Path) -> None:
    model_folder(tmp_path / "model", SOURCE, make_whole, ignore)
    with pytest.raises(UsageError, match="holds tiny at 1, not tiny at 2: nothing was changed"):
        model_folder(tmp_path / "model", Source(name="tiny", revision="2"), make_nothing, ignore)


@pytest.mark.parametrize("damage", ["changed", "deleted"])
def test_a_file_that_changed_is_named(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    model_folder(folder, SOURCE, make_whole, ignore)
    (folder / "inner" / "more").write_text("less") if damage == "changed" else (folder / "inner" / "more").unlink()
    with pytest.raises(UsageError, match=r"inner/more changed\): delete it and get it again"):
        model_folder(folder, SOURCE, make_nothing, ignore)


def test_the_folders_above_are_made(tmp_path: Path) -> None:
    assert model_folder(tmp_path / "models" / "small" / "model", SOURCE, make_whole, ignore)
    assert (tmp_path / "models" / "small" / "model" / "inner" / "more").exists()


def test_places_that_cannot_hold_a_folder_are_clear_errors(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot make .*/file: .*; name another place"):
        model_folder(tmp_path / "file" / "model", SOURCE, make_nothing, ignore)
    with pytest.raises(UsageError, match="it is a file"):
        model_folder(tmp_path / "file", SOURCE, make_nothing, ignore)


def test_a_folder_that_cannot_take_the_name_keeps_the_finished_model(tmp_path: Path) -> None:
    folder = tmp_path / "model"

    def make(out: Path) -> dict[str, str]:
        folder.mkdir()
        (folder / "appeared").touch()
        return make_whole(out)

    with pytest.raises(GetFailed, match="cannot be renamed to"):
        model_folder(folder, SOURCE, make, ignore)
    assert (folder / "appeared").exists()


def test_a_file_of_another_hash_than_its_source_says_is_fetched_again(tmp_path: Path) -> None:
    folder, right = tmp_path / "model", hashlib.sha256(b"whole").hexdigest()

    def make(out: Path) -> dict[str, str]:
        (out / "other").touch()
        (out / "config.json").write_text("half")
        return {"config.json": right}

    with pytest.raises(GetFailed, match=r"config\.json arrived damaged .* and was deleted: run the same again"):
        model_folder(folder, SOURCE, make, ignore)
    assert not folder.exists()
    assert model_folder(folder, SOURCE, make_whole_with_hash, ignore)


def make_whole_with_hash(out: Path) -> dict[str, str]:
    assert not (out / "config.json").exists() and (out / "other").exists()
    make_whole(out)
    return {"config.json": hashlib.sha256(b"whole").hexdigest()}
