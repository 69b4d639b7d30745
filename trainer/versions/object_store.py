"""Versions in object storage, for machines that share a store: any machine can continue from the newest version.

Invariant: `versions/<8 digits>.json` is a version's manifest, put with the condition that none exists. Its files, below
`versions/<8 digits>/`, are put before it, so a version with a manifest is complete. Where two trainers made the same
version, the first manifest wins, and the other trainer replaces its own folder. Nothing is done where the store's root
is a folder.
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
    """Upload a version. Returns it, or the version that another machine has uploaded under the same number."""
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
    """Fetch the newest shared version, and replace local versions that differ from shared ones of the same number."""
    objects = objects_of(store)
    if objects is None:
        return
    shared = _shared(objects)
    for number in {*shared[-1:], *(version.manifest.version for version in list_versions(store.folder))}:
        if number in shared:
            _fetch(objects, store.folder, number)


def fetch_version(store: StoreConfig, number: int) -> None:
    """Fetch one version, if it is shared."""
    objects = objects_of(store)
    if objects is not None and number in _shared(objects):
        _fetch(objects, store.folder, number)


def delete_old_shared_versions(store: StoreConfig, keep: int, *, below: int | None) -> None:
    """Delete all shared versions but the newest `keep`; those from `below` on are kept in any case."""
    objects = objects_of(store)
    if objects is None:
        return
    for number in _shared(objects)[:-keep]:
        if below is None or number < below:
            objects.delete([_pointer(number)])  # others lose the version in one step
            objects.delete(objects.names(f"versions/{number:08d}"))


def _shared(objects: Objects) -> list[int]:
    found = (_POINTER.fullmatch(name) for name in objects.names("versions"))
    return [int(pointer[1]) for pointer in found if pointer]


def _pointer(number: int) -> str:
    return f"versions/{number:08d}.json"


def _files(number: int, manifest: bytes) -> str:
    """The prefix of a version's files; the manifest's hash separates two trainers' files of the same number."""
    return f"versions/{number:08d}/{hashlib.sha256(manifest).hexdigest()[:16]}"


def _fetch(objects: Objects, root: Path, number: int) -> Version:
    """Download a shared version into its folder, verified, unless it is there."""
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
