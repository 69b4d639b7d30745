"""Versions stored as differences: rebuilt to the byte, kept while a chain needs them, and damage that is named."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support_s3 import S3Server
from support_staged import write_stored

from weir.store.config import StoreConfig
from weir.trainer.errors import VersionError
from weir.trainer.versions.object_store import (
    delete_old_shared_versions,
    fetch_newest,
    fetch_version,
    share_version,
)
from weir.trainer.versions.stored import make_whole, prune, thin, verify_stored
from weir.trainer.versions.version_folder import Version, list_versions, verify, version_path

WEIGHTS = "model.safetensors"


def weights(number: int) -> dict[str, torch.Tensor]:
    """Those of a version: bfloat16 and float32, of which few change from one to the next."""
    random = torch.Generator().manual_seed(0)
    low, high = torch.randn(40_000, generator=random), torch.randn(999, generator=random)
    for step in range(number):
        low[step::500] += 0.5
        high[step::100] += 1e-6
    return {"low": low.to(torch.bfloat16).reshape(200, 200), "high": high}


def write(root: Path, number: int, full_every: int) -> Version:
    def write_files(folder: Path) -> None:
        save_file(weights(number), folder / WEIGHTS)
        (folder / "config.json").write_text("{}")

    return write_stored(root, number, write_files, full_every=full_every)


def write_many(root: Path, count: int, full_every: int) -> dict[int, bytes]:
    """Versions 1 to `count` as rounds make them, each thin once the next one is there; their weights."""
    contents = {}
    for number in range(1, count + 1):
        contents[number] = (write(root, number, full_every).path / WEIGHTS).read_bytes()
        thin(root)
    return contents


def there(root: Path) -> dict[int, bool]:
    """The versions of a store, and whether each has its whole weights."""
    return {version.manifest.version: (version.path / WEIGHTS).exists() for version in list_versions(root)}


def test_one_of_so_many_versions_is_whole_and_any_is_rebuilt_from_its_chain(tmp_path: Path) -> None:
    contents = write_many(tmp_path, 8, 4)
    assert [version.manifest.base for version in list_versions(tmp_path)] == [None, 1, 2, 3, None, 5, 6, 7]
    assert there(tmp_path) == {1: True, 2: False, 3: False, 4: False, 5: True, 6: False, 7: False, 8: True}
    whole = len(contents[1])
    assert all((version_path(tmp_path, n) / f"{WEIGHTS}.delta").stat().st_size < 0.1 * whole for n in (2, 3, 4, 6, 7))
    for version in list_versions(tmp_path):
        verify_stored(version.path)
        make_whole(version.path)
        verify(version.path)
        assert (version.path / WEIGHTS).read_bytes() == contents[version.manifest.version]


def test_what_a_chain_needs_is_not_deleted(tmp_path: Path) -> None:
    contents = write_many(tmp_path, 7, 4)
    assert prune(tmp_path, keep=2) == ([1, 2, 3, 4], []), "version 6 needs 5, 7 is whole"
    assert there(tmp_path) == {5: True, 6: False, 7: True}
    write(tmp_path, 8, 4)
    thin(tmp_path)
    assert prune(tmp_path, keep=2) == ([], []), "version 7 needs 6 and 5"
    make_whole(version_path(tmp_path, 7))
    assert (version_path(tmp_path, 7) / WEIGHTS).read_bytes() == contents[7]
    for number in (9, 10):
        write(tmp_path, number, 4)
        thin(tmp_path)
    assert prune(tmp_path, keep=1) == ([5, 6, 7, 8, 9], [])


def test_versions_that_an_engine_may_load_stay_whole(tmp_path: Path) -> None:
    for number in range(1, 5):
        write(tmp_path, number, 4)
    assert thin(tmp_path, below=3) == [2]
    assert there(tmp_path) == {1: True, 2: False, 3: True, 4: True}
    assert prune(tmp_path, keep=1, below=3) == ([1, 2], [3])


@pytest.mark.parametrize("damaged", ["00000001/model.safetensors", "00000002/model.safetensors.delta"])
def test_damage_in_a_chain_is_named_and_nothing_is_rebuilt_from_it(tmp_path: Path, damaged: str) -> None:
    write_many(tmp_path, 4, 4)
    file = tmp_path / "versions" / damaged
    content = file.read_bytes()
    file.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    with pytest.raises(VersionError, match=rf"version 3 cannot be rebuilt: .*{damaged} is not what the manifest"):
        make_whole(version_path(tmp_path, 3))
    assert there(tmp_path)[3] is False
    file.unlink()
    with pytest.raises(VersionError, match=r"cannot be rebuilt|is missing") as caught:
        verify_stored(version_path(tmp_path, 3))
    assert file.parent.name in str(caught.value)
    shutil.rmtree(file.parent)
    with pytest.raises(VersionError, match=rf"needs version {int(file.parent.name)}, and .*{file.parent.name} is miss"):
        verify_stored(version_path(tmp_path, 3))


def test_a_whole_file_is_not_deleted_for_a_delta_that_leads_elsewhere(tmp_path: Path) -> None:
    for number in range(1, 4):
        write(tmp_path, number, 4)
    delta = version_path(tmp_path, 2) / f"{WEIGHTS}.delta"
    delta.write_bytes(delta.read_bytes()[:-1])
    with pytest.raises(VersionError, match=r"00000002/model\.safetensors\.delta is not what"):
        thin(tmp_path)
    assert there(tmp_path) == {1: True, 2: True, 3: True}


@pytest.fixture
def machine(s3: S3Server, tmp_path: Path) -> Iterator[list[StoreConfig]]:
    """Three machines over one root."""
    shared = {"root": s3.new_root(), "s3_endpoint": s3.url}
    yield [StoreConfig.model_validate({**shared, "local_folder": tmp_path / name}) for name in "abc"]


def test_deltas_are_shared_and_another_machine_rebuilds_the_newest(machine: list[StoreConfig]) -> None:
    ours, theirs, late = machine
    contents = {}
    for number in range(1, 7):
        version = write(ours.folder, number, 4)
        contents[number] = (version.path / WEIGHTS).read_bytes()
        assert share_version(ours, version) == version
        thin(ours.folder)
        if number == 2:
            fetch_newest(theirs)
            assert there(theirs.folder) == {1: True, 2: True}
    fetch_newest(theirs)
    assert there(theirs.folder) == {1: True, 2: True, 5: True, 6: True}
    assert (version_path(theirs.folder, 6) / WEIGHTS).read_bytes() == contents[6]
    delete_old_shared_versions(ours, 1, below=None)
    fetch_version(late, 6)
    assert there(late.folder) == {5: True, 6: True}
    assert (version_path(late.folder, 6) / WEIGHTS).read_bytes() == contents[6]
    fetch_version(late, 3)
    assert there(late.folder) == {5: True, 6: True}, "no chain needed it"


def test_a_machine_with_a_gap_in_its_chain_fetches_what_lacks(machine: list[StoreConfig]) -> None:
    ours, theirs, _ = machine
    for number in range(1, 5):
        share_version(ours, write(ours.folder, number, 4))
    fetch_version(theirs, 4)
    assert there(theirs.folder) == {1: True, 2: False, 3: False, 4: True}
    (version_path(theirs.folder, 4) / WEIGHTS).unlink()
    shutil.rmtree(version_path(theirs.folder, 2))
    fetch_newest(theirs)
    verify(version_path(theirs.folder, 4))
