"""Versions in object storage, for machines that share a store: any machine can continue from the newest version.

Invariant: `versions/<8 digits>.json` is a version's manifest, put with the condition that none exists. Its files, below
`versions/<8 digits>/`, are put before it, so a version with a manifest is complete. A file that has a delta is put as
that delta alone; the versions that it is rebuilt from are kept, and fetched before it. Where two trainers made the same
version, the first manifest wins, and the other trainer replaces its own folder. Where the store's root is a folder,
nothing is fetched.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

from weir.store.atomic_file import fsync
from weir.store.config import StoreConfig
from weir.store.errors import ObjectConflict
from weir.store.shared.object_store import Objects, objects_of
from weir.trainer.versions.delta_file import SUFFIX
from weir.trainer.versions.folder_rename import folder_aside
from weir.trainer.versions.stored import lacking, make_whole, stored_entries
from weir.trainer.versions.version_folder import (
    MANIFEST,
    Version,
    VersionManifest,
    current_version,
    list_versions,
    read_manifest,
    verify_files,
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
        for name in _stored_names(version.manifest):
            objects.put(f"{_files(number, text)}/{name}", version.path / name, named_by_content=True)
    try:
        objects.put(_pointer(number), text)
    except ObjectConflict:
        return _fetch(objects, store.folder, number)
    return version


def fetch_newest(store: StoreConfig) -> None:
    """Fetch the newest shared version, and replace local versions that differ from shared ones of the same number.

    The newest version of the folder is whole afterwards. Raises `VersionError` where it cannot be rebuilt.
    """
    objects = objects_of(store)
    if objects is not None:
        shared = _shared(objects)
        for number in {*shared[-1:], *(version.manifest.version for version in list_versions(store.folder))}:
            if number in shared:
                _fetch(objects, store.folder, number, whole=number == shared[-1])
    newest = current_version(store.folder)
    if newest is not None:
        make_whole(newest.path)


def fetch_version(store: StoreConfig, number: int) -> None:
    """Fetch one version, if it is shared, and make it whole. Raises `VersionError` where it cannot be rebuilt."""
    objects = objects_of(store)
    if objects is not None and number in _shared(objects):
        _fetch(objects, store.folder, number)
    elif (version_path(store.folder, number) / MANIFEST).exists():
        make_whole(version_path(store.folder, number))


def delete_old_shared_versions(store: StoreConfig, keep: int, *, below: int | None) -> None:
    """Delete all shared versions but the newest `keep`, those from `below` on, and what these are rebuilt from."""
    objects = objects_of(store)
    if objects is None:
        return
    shared = _shared(objects)
    kept = {*shared[-keep:], *(number for number in shared if below is not None and number >= below)}
    for number in sorted(kept):
        while (base := _base(objects, number)) is not None and base not in kept:
            kept.add(base)
            number = base
    for number in shared:
        if number not in kept:
            objects.delete([_pointer(number)])  # others lose the version in one step
            objects.delete(objects.names(f"versions/{number:08d}"))


def _shared(objects: Objects) -> list[int]:
    found = (_POINTER.fullmatch(name) for name in objects.names("versions"))
    return [int(pointer[1]) for pointer in found if pointer]


def _base(objects: Objects, number: int) -> int | None:
    """The version that a shared one is stored as a difference to."""
    text = objects.read(_pointer(number))
    return None if text is None else msgspec.json.decode(text, type=VersionManifest).base


def _stored_names(manifest: VersionManifest) -> list[str]:
    """The files of a version that are shared, its manifest last."""
    whole = (name for name in manifest.files if name not in manifest.deltas)
    return [*whole, *(name + SUFFIX for name in manifest.deltas), MANIFEST]


def _pointer(number: int) -> str:
    return f"versions/{number:08d}.json"


def _files(number: int, manifest: bytes) -> str:
    """The prefix of a version's files; the manifest's hash separates two trainers' files of the same number."""
    return f"versions/{number:08d}/{hashlib.sha256(manifest).hexdigest()[:16]}"


def _fetch(objects: Objects, root: Path, number: int, *, whole: bool = True) -> Version:
    """Download a shared version into its folder, verified, unless it is there.

    The versions that it is rebuilt from come first, as they are stored; with `whole` its files are rebuilt.
    """
    folder = version_path(root, number)
    text = objects.read(_pointer(number))
    if text is not None and not _is_here(folder, text):
        _fetch_base(objects, root, msgspec.json.decode(text, type=VersionManifest))
        with folder_aside(folder, replace=True) as aside:
            for key in objects.names(_files(number, text)):
                objects.fetch(key, aside / Path(key).name)
            verify_files(aside, stored_entries(aside, read_manifest(aside)))
            if whole:
                make_whole(aside, siblings=folder.parent)
            for file in aside.iterdir():
                fsync(file)
    elif text is not None and lacking(folder, read_manifest(folder)):
        _fetch_base(objects, root, read_manifest(folder))
        if whole:
            make_whole(folder)
    return Version(path=folder, manifest=read_manifest(folder))


def _fetch_base(objects: Objects, root: Path, manifest: VersionManifest) -> None:
    if manifest.base is not None:
        _fetch(objects, root, manifest.base, whole=False)


def _is_here(folder: Path, manifest: bytes) -> bool:
    return (folder / MANIFEST).exists() and (folder / MANIFEST).read_bytes() == manifest
