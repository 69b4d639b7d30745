"""Version folders: complete or absent, checked, never overwritten."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from weir.trainer.errors import VersionError
from weir.trainer.versions.stored import prune
from weir.trainer.versions.version_folder import (
    Version,
    current_version,
    list_versions,
    read_manifest,
    set_current,
    verify,
    version_path,
    versions_folder,
    write_version,
)


def write(root: Path, version: int, *, fail: bool = False) -> Version:
    def write_files(folder: Path) -> None:
        save_file({"w": np.full((2, 3), version, np.float32)}, folder / "model.safetensors")
        if fail:
            raise OSError("no space left on device")

    return write_version(
        version_path(root, version),
        write_files,
        version=version,
        parent=version - 1,
        round_id=version,
        config_hash="c",
        seed=7,
        groups=[f"g{version}"],
    )


def test_the_manifest_names_every_file_and_tensor(tmp_path: Path) -> None:
    folder = write(tmp_path, 3).path
    manifest = verify(folder)
    assert (manifest.version, manifest.parent, manifest.round, manifest.groups, manifest.seed) == (3, 2, 3, ["g3"], 7)
    assert manifest.tensors["w"].shape == [2, 3]
    assert manifest.tensors["w"].dtype == "F32"
    assert manifest.files["model.safetensors"].size_bytes == (folder / "model.safetensors").stat().st_size


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with pytest.raises(VersionError, match=r"version 2 cannot be written .*no space left.*make room"):
        write(tmp_path, 2, fail=True)
    assert [p.name for p in versions_folder(tmp_path).iterdir()] == ["00000001"]


def test_the_newest_complete_folder_counts_even_when_current_was_not_flipped(tmp_path: Path) -> None:
    write(tmp_path, 1)
    set_current(tmp_path, 1)
    write(tmp_path, 2)
    found = current_version(tmp_path)
    assert found is not None
    assert found.manifest.version == 2
    assert (versions_folder(tmp_path) / "CURRENT").read_text() == "00000001\n"


def test_a_version_is_never_overwritten(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with pytest.raises(VersionError, match="never overwritten"):
        write(tmp_path, 1)


def test_damage_is_named_by_file(tmp_path: Path) -> None:
    folder = write(tmp_path, 1).path
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(VersionError, match=r"model\.safetensors is not what the manifest says"):
        verify(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(VersionError, match=r"model\.safetensors is missing"):
        verify(folder)


def test_a_folder_without_manifest_is_no_version(tmp_path: Path) -> None:
    with pytest.raises(VersionError, match="not a version folder"):
        read_manifest(tmp_path)


def test_pruning_keeps_the_newest_and_removes_what_killed_writers_left(tmp_path: Path) -> None:
    for version in range(1, 5):
        write(tmp_path, version)
    (versions_folder(tmp_path) / ".00000005.123.new").mkdir()
    (versions_folder(tmp_path) / ".CURRENT.123.new").touch()
    assert prune(tmp_path, keep=2) == ([1, 2], [])
    assert [v.manifest.version for v in list_versions(tmp_path)] == [3, 4]
    assert sorted(p.name for p in versions_folder(tmp_path).iterdir()) == ["00000003", "00000004"]
