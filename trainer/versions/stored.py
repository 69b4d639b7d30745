"""Versions stored as differences: which files are there, how the others are rebuilt, and what may be deleted.

Invariant: a file that a folder lacks is rebuilt from its chain: the same file of the base, and of that one's base, back
to one that is there, and the delta files from there on. The rebuilt bytes have the hash that the manifest has for the
whole file. A whole file is deleted only after its chain has led to that hash, and a version only while no other that is
kept needs it. The newest version is always whole: engines and rounds load it by its folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from weir.engine.transfer.block_delta import DeltaDamaged
from weir.store.atomic_file import written_aside
from weir.store.version_forms import other_forms
from weir.trainer.errors import VersionError
from weir.trainer.versions.delta_file import SUFFIX, rebuilt
from weir.trainer.versions.folder_rename import delete_folder, delete_leftovers
from weir.trainer.versions.version_folder import (
    MANIFEST,
    FileEntry,
    Version,
    VersionManifest,
    file_entry,
    list_versions,
    read_manifest,
    verify_files,
    version_path,
    versions_folder,
)


def base_of_next(root: Path, parent: int, full_every: int) -> Version | None:
    """The version to which a new one is stored as a difference; None if it is to be stored whole.

    `full_every`: of so many versions in a row one is whole.
    """
    folder = version_path(root, parent)
    if full_every == 1 or not (folder / MANIFEST).exists():
        return None
    manifest = read_manifest(folder)
    in_a_row, current = 1, manifest
    while current.base is not None and (version_path(root, current.base) / MANIFEST).exists():
        in_a_row, current = in_a_row + 1, read_manifest(version_path(root, current.base))
    return Version(path=folder, manifest=manifest) if in_a_row < full_every else None


def lacking(folder: Path, manifest: VersionManifest) -> list[str]:
    """The files of a version folder that are there as differences only."""
    return [name for name in manifest.deltas if not (folder / name).exists()]


def make_whole(folder: Path, *, siblings: Path | None = None) -> None:
    """Rebuild the files that a version folder lacks, verified; without deltas nothing is done.

    `siblings`: the folder with the other versions, else that of `folder`. Raises `VersionError` naming the damaged
    file where the hash of the whole differs.
    """
    manifest = read_manifest(folder)
    for name in lacking(folder, manifest):
        with written_aside(folder / name, durable=True) as aside, aside.open("wb") as file:
            for part in _verified(folder, manifest, name, siblings or folder.parent):
                file.write(part)


def verify_stored(folder: Path, *, siblings: Path | None = None) -> None:
    """Check that every file of a version is there or can be rebuilt; nothing is written. Raises as `make_whole`."""
    manifest = read_manifest(folder)
    verify_files(folder, stored_entries(folder, manifest))
    for name in lacking(folder, manifest):
        for _ in _verified(folder, manifest, name, siblings or folder.parent):
            pass


def stored_entries(folder: Path, manifest: VersionManifest) -> dict[str, FileEntry]:
    """The entries of all files that a folder is to hold: deltas, and the files that are not lacking."""
    missing = lacking(folder, manifest)
    whole = {name: entry for name, entry in manifest.files.items() if name not in missing}
    return whole | {name + SUFFIX: entry for name, entry in manifest.deltas.items()}


def needed_by(kept: Iterable[Version], root: Path) -> set[int]:
    """The versions from which those that are kept are rebuilt."""
    needed: set[int] = set()
    for version in kept:
        folder, manifest = version.path, version.manifest
        while manifest.base is not None and manifest.base not in needed and lacking(folder, manifest):
            needed.add(manifest.base)
            folder = version_path(root, manifest.base)
            if not (folder / MANIFEST).exists():
                break  # `verify_stored` says so
            manifest = read_manifest(folder)
    return needed


def prune(root: Path, keep: int, *, below: int | None = None) -> tuple[list[int], list[int]]:
    """Delete all versions but the newest `keep` and those that they are rebuilt from, and what killed writers left.

    Versions from `below` on are kept in any case. Returns the deleted numbers, and those kept only because of `below`.
    """
    versions = list_versions(root)
    old = versions[:-keep]
    waiting = [version for version in old if below is not None and version.manifest.version >= below]
    needed = needed_by([*versions[-keep:], *waiting], root)
    doomed = [version for version in old if version not in waiting and version.manifest.version not in needed]
    for version in doomed:
        delete_folder(version.path)
    for version in versions[:-1]:
        is_loaded = below is not None and version.manifest.version >= below
        for form in () if is_loaded else other_forms(version.path):
            delete_folder(form)
    delete_leftovers(versions_folder(root))
    return [version.manifest.version for version in doomed], [version.manifest.version for version in waiting]


def thin(root: Path, *, below: int | None = None) -> list[int]:
    """Delete whole files that their deltas lead to, but those of the newest version and of versions from `below` on.

    Returns the versions that are differences only from now on. Raises `VersionError`, and deletes nothing of that
    version, where its chain does not lead to the same bytes.
    """
    thinned = []
    for version in reversed(list_versions(root)[:-1]):  # the newest first: its base is often still whole
        folder, manifest = version.path, version.manifest
        whole = [name for name in manifest.deltas if (folder / name).exists()]
        if not whole or (below is not None and manifest.version >= below) or not _has_chain(root, manifest):
            continue
        for name in whole:
            for _ in _verified(folder, manifest, name, versions_folder(root)):
                pass
        for name in whole:
            (folder / name).unlink()
        thinned.append(manifest.version)
    return thinned


def _has_chain(root: Path, manifest: VersionManifest) -> bool:
    """Whether the base of a version is there; it may have been deleted while the version was whole."""
    return manifest.base is not None and (version_path(root, manifest.base) / MANIFEST).exists()


def _verified(folder: Path, manifest: VersionManifest, name: str, siblings: Path) -> Iterator[bytes | memoryview]:
    """The parts of a file, from its chain. After the last one, raises `VersionError` if the hash is not the whole's."""
    base, deltas = _chain(folder, manifest, name, siblings)
    for delta, entry in deltas:
        _check(delta, entry, manifest.version)
    digest = hashlib.sha256()
    try:
        for part in rebuilt(base[0], [delta for delta, _ in deltas]):
            digest.update(part)
            yield part
    except (DeltaDamaged, OSError) as error:
        raise VersionError(f"version {manifest.version} cannot be rebuilt: {error}") from error
    if digest.hexdigest() != manifest.files[name].sha256:
        _check(*base, manifest.version)
        raise VersionError(
            f"version {manifest.version} cannot be rebuilt: {base[0]} and its {len(deltas)} deltas are as they were "
            f"written, and lead to another {name}; restore {folder} from a copy"
        )


def _chain(
    folder: Path, manifest: VersionManifest, name: str, siblings: Path
) -> tuple[tuple[Path, FileEntry], list[tuple[Path, FileEntry]]]:
    """The whole file that a chain begins with, and the delta files from there to `folder`, each with its entry."""
    deltas: list[tuple[Path, FileEntry]] = []
    number, current, place = manifest.version, manifest, folder
    while True:
        entry = current.deltas.get(name)
        if entry is None or current.base is None:
            raise VersionError(
                f"version {number} cannot be rebuilt: {place / name} is missing, and it has no delta; restore it from "
                "a copy"
            )
        deltas.insert(0, (place / (name + SUFFIX), entry))
        place = siblings / f"{current.base:08d}"
        if not (place / MANIFEST).exists():
            raise VersionError(
                f"version {number} cannot be rebuilt: its chain needs version {current.base}, and {place} is missing; "
                "restore that folder from a copy"
            )
        current = read_manifest(place)
        if name not in current.files or current.files[name].sha256 != entry.base_sha256:
            raise VersionError(
                f"version {number} cannot be rebuilt: {place} is not the version {current.version} that its chain "
                "begins with; restore that folder from a copy"
            )
        if (place / name).exists():
            return (place / name, current.files[name]), deltas


def _check(file: Path, entry: FileEntry, version: int) -> None:
    """Raise `VersionError` where a file of the chain of `version` is missing or damaged."""
    seen = file_entry(file) if file.is_file() else None
    if seen is None or (seen.sha256, seen.size_bytes) != (entry.sha256, entry.size_bytes):
        what = "is missing" if seen is None else "is not what the manifest says (sha256 or size): it is damaged"
        raise VersionError(f"version {version} cannot be rebuilt: {file} {what}; restore it from a copy")
