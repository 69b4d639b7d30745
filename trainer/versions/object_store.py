"""Weights where machines share a store: versions in object storage, so that any machine can go on from the newest.

Invariants: `versions/<8 digits>.json` is a version's manifest, put under the condition that there is none: with it the
version exists for all machines, whole, because its files were put before, below `versions/<8 digits>/`. Where two
trainers made the same version the first to put the manifest has made it, and the other takes that one in place of its
own. Where the store's root is a folder there is nothing to do, and nothing is done. Not here: what a version folder
holds (versions.py), and whose turn it is (claims.py).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from weir.store.atomic_file import fsync
from weir.store.config import StoreConfig
from weir.store.errors import ObjectConflict
from weir.store.shared.object_store import Objects, objects_of
from weir.trainer.versions.folder_rename import folder_aside
from weir.trainer.versions.version_folder import (
    MANIFEST,
    Version,
    list_versions,
    read_manifest,
    verify,
    version_path,
)

_POINTER = re.compile(r"versions/(\d{8})\.json")


def share_version(store: StoreConfig, version: Version) -> Version:
    """Make a version exist for all machines. Returns it, or the one that another machine shared under its number."""
    objects = objects_of(store)
    if objects is None:
        return version
    number, text = version.manifest.version, (version.path / MANIFEST).read_bytes()
    if objects.read(_pointer(number)) is None:
        for name in (*version.manifest.files, MANIFEST):
            objects.put(f"{_files(number, text)}/{name}", version.path / name, named_by_content=True)
    try:
        objects.put(_pointer(number), text)
    except ObjectConflict:
        return _fetch(objects, store.folder, number)
    return version


def fetch_newest(store: StoreConfig) -> None:
    """Have the newest version that any machine shared, and the shared ones in place of own ones of the same numbers."""
    objects = objects_of(store)
    if objects is None:
        return
    shared = _shared(objects)
    for number in {*shared[-1:], *(version.manifest.version for version in list_versions(store.folder))}:
        if number in shared:
            _fetch(objects, store.folder, number)


def fetch_version(store: StoreConfig, number: int) -> None:
    """Have one version, if any machine shared it and its files are still there."""
    objects = objects_of(store)
    if objects is not None and number in _shared(objects):
        _fetch(objects, store.folder, number)


def delete_old_shared_versions(store: StoreConfig, keep: int, *, below: int | None) -> None:
    """Delete all but the newest `keep` versions from object storage; those from `below` on stay in any case."""
    objects = objects_of(store)
    if objects is None:
        return
    for number in _shared(objects)[:-keep]:
        if below is None or number < below:
            objects.delete([_pointer(number)])  # gone for others in one step
            objects.delete(objects.names(f"versions/{number:08d}"))


def _shared(objects: Objects) -> list[int]:
    found = (_POINTER.fullmatch(name) for name in objects.names("versions"))
    return [int(pointer[1]) for pointer in found if pointer]


def _pointer(number: int) -> str:
    return f"versions/{number:08d}.json"


def _files(number: int, manifest: bytes) -> str:
    """Where the files lie of the version with this manifest; another trainer's of the same number lie beside them."""
    return f"versions/{number:08d}/{hashlib.sha256(manifest).hexdigest()[:16]}"


def _fetch(objects: Objects, root: Path, number: int) -> Version:
    """Make the shared version appear in its folder, whole and checked, unless it is there."""
    folder = version_path(root, number)
    text = objects.read(_pointer(number))
    if text is not None and not _is_here(folder, text):
        with folder_aside(folder, replace=True) as aside:
            for key in objects.names(_files(number, text)):
                objects.fetch(key, aside / Path(key).name)
            verify(aside)
            for file in aside.iterdir():
                fsync(file)
    return Version(path=folder, manifest=read_manifest(folder))


def _is_here(folder: Path, manifest: bytes) -> bool:
    return (folder / MANIFEST).exists() and (folder / MANIFEST).read_bytes() == manifest
