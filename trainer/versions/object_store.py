"""Versions in object storage, for machines that share a store: any machine can continue from the newest version.

Invariant: `versions/<8 digits>.json` is a version's manifest, put with the condition that none exists. Its files, below
`versions/<8 digits>/`, are put before it, so a version with a manifest is complete. A file that has a delta is put as
that delta alone; the versions that it is rebuilt from are kept, and fetched before it. Where two trainers made the same
version, the first manifest wins, and the other trainer replaces its own folder. Where the store's root is a folder,
nothing is fetched.
"""

from __future__ import annotations

import msgspec

from weir.store.config import StoreConfig
from weir.store.errors import ObjectConflict
from weir.store.shared.object_store import Objects, objects_of
from weir.trainer.versions.delta_file import SUFFIX
from weir.trainer.versions.sources import SharedVersions, fetch, files_prefix, pointer_key
from weir.trainer.versions.stored import make_whole
from weir.trainer.versions.version_folder import (
    MANIFEST,
    Version,
    VersionManifest,
    current_version,
    list_versions,
    version_path,
)


def share_version(store: StoreConfig, version: Version) -> Version:
    """Upload a version. Returns it, or the version that another machine has uploaded under the same number."""
    objects = objects_of(store)
    if objects is None:
        return version
    number, text = version.manifest.version, (version.path / MANIFEST).read_bytes()
    if objects.read(pointer_key(number)) is None:
        for name in _stored_names(version.manifest):
            objects.put(f"{files_prefix(number, text)}/{name}", version.path / name, named_by_content=True)
    try:
        objects.put(pointer_key(number), text)
    except ObjectConflict:
        return fetch(SharedVersions(objects), store.folder, number)
    return version


def fetch_newest(store: StoreConfig) -> None:
    """Fetch the newest shared version, and replace local versions that differ from shared ones of the same number.

    The newest version of the folder is whole afterwards. Raises `VersionError` where it cannot be rebuilt.
    """
    objects = objects_of(store)
    if objects is not None:
        source = SharedVersions(objects)
        shared = source.numbers()
        for number in {*shared[-1:], *(version.manifest.version for version in list_versions(store.folder))}:
            if number in shared:
                fetch(source, store.folder, number, whole=number == shared[-1])
    newest = current_version(store.folder)
    if newest is not None:
        make_whole(newest.path)


def fetch_version(store: StoreConfig, number: int) -> None:
    """Fetch one version, if it is shared, and make it whole. Raises `VersionError` where it cannot be rebuilt."""
    objects = objects_of(store)
    if objects is not None and number in SharedVersions(objects).numbers():
        fetch(SharedVersions(objects), store.folder, number)
    elif (version_path(store.folder, number) / MANIFEST).exists():
        make_whole(version_path(store.folder, number))


def delete_old_shared_versions(store: StoreConfig, keep: int, *, below: int | None) -> None:
    """Delete all shared versions but the newest `keep`, those from `below` on, and what these are rebuilt from."""
    objects = objects_of(store)
    if objects is None:
        return
    shared = SharedVersions(objects).numbers()
    kept = {*shared[-keep:], *(number for number in shared if below is not None and number >= below)}
    for number in sorted(kept):
        while (base := _base(objects, number)) is not None and base not in kept:
            kept.add(base)
            number = base
    for number in shared:
        if number not in kept:
            objects.delete([pointer_key(number)])  # others lose the version in one step
            objects.delete(objects.names(f"versions/{number:08d}"))


def _base(objects: Objects, number: int) -> int | None:
    """The version that a shared one is stored as a difference to."""
    text = objects.read(pointer_key(number))
    return None if text is None else msgspec.json.decode(text, type=VersionManifest).base


def _stored_names(manifest: VersionManifest) -> list[str]:
    """The files of a version that are shared, its manifest last."""
    whole = (name for name in manifest.files if name not in manifest.deltas)
    return [*whole, *(name + SUFFIX for name in manifest.deltas), MANIFEST]
