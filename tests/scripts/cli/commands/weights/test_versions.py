"""`weir versions` as a process, over versions that are stored as differences."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support_staged import write_stored

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.version_forms import fp8_folder
from weir.trainer.versions.stored import thin
from weir.trainer.versions.version_folder import version_path


def versions(store: StoreConfig, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "versions", *arguments, "--root", str(store.root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def contents(store: StoreConfig) -> dict[int, bytes]:
    """Three versions, the second of which is a difference only; their weights."""
    Catalog.open(store).close()
    found = {}
    for number in (1, 2, 3):

        def write_files(folder: Path, number: int = number) -> None:
            values = torch.zeros(5000)
            values[::100] = number
            save_file({"w": values}, folder / "model.safetensors")
            for name in ("config.json", "metrics.json", "trainer_state.pt", "critic.pt"):
                (folder / name).write_text("{}")

        version = write_stored(store.folder, number, write_files, full_every=3)
        found[number] = (version.path / "model.safetensors").read_bytes()
    assert thin(store.folder) == [2]
    return found


def test_versions_are_listed_and_written_out_as_plain_folders(
    store: StoreConfig, contents: dict[int, bytes], tmp_path: Path
) -> None:
    listed = versions(store)
    assert listed.returncode == 0, listed.stderr
    rows = [line for line in listed.stdout.splitlines() if "versions/0000000" in line]
    for row, stored in zip(rows, (" whole ", " difference to 1 ", " whole, difference to 2 "), strict=True):
        assert stored in row
    folder = tmp_path / "out"
    written = versions(store, "export", "2", str(folder))
    assert written.returncode == 0, written.stderr
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert (folder / "model.safetensors").read_bytes() == contents[2]
    assert not (version_path(store.folder, 2) / "model.safetensors").exists()
    again = versions(store, "export", "1", str(folder))
    assert (again.returncode, "exists already" in again.stderr) == (1, True)
    unknown = versions(store, "export", "9", str(tmp_path / "other"))
    assert (unknown.returncode, "there is no version 9; there are: 1, 2, 3" in unknown.stderr) == (2, True)


def test_verifying_names_the_damage_of_each_version(store: StoreConfig, contents: dict[int, bytes]) -> None:
    intact = versions(store, "verify")
    assert (intact.returncode, intact.stdout.count("as it was written")) == (0, 3), intact.stdout
    file = version_path(store.folder, 1) / "model.safetensors"
    file.write_bytes(contents[1][:-1] + b"\1")
    found = versions(store, "verify")
    assert found.returncode == 1
    first, second, third = found.stdout.splitlines()
    assert first.startswith(f"version 1: {file} is not what the manifest says")
    assert second.startswith(f"version 2: version 2 cannot be rebuilt: {file} is not what the manifest says")
    assert "as it was written" in third
    form = fp8_folder(version_path(store.folder, 3))
    shutil.copytree(version_path(store.folder, 3), form)
    assert versions(store, "verify", "3").returncode == 0
    (form / "config.json").write_text("")
    assert f"version 3: {form / 'config.json'} is not what" in versions(store, "verify", "3").stdout


def test_an_export_that_cannot_be_written_is_one_line_and_leaves_nothing(
    store: StoreConfig, contents: dict[int, bytes], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    failed = versions(store, "export", "2", str(tmp_path / "file" / "under"))
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"weir: cannot write {tmp_path / 'file' / 'under'}: ")
    assert len(failed.stderr.splitlines()) == 1
