"""Where versions come from: a folder of versions, or object storage; and fetching one, with what it is rebuilt from.

Invariant: a fetched version appears in its folder by one rename, verified; what it is rebuilt from is there before it.
Where a difference is damaged and the source has the whole files, these are fetched, and the damage is said.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from weir.store.atomic_file import fsync
from weir.store.config import StoreConfig
from weir.store.shared.object_store import Objects, objects_of
from weir.trainer.errors import VersionError
from weir.trainer.versions.delta_file import SUFFIX
from weir.trainer.versions.folder_rename import folder_aside
from weir.trainer.versions.stored import lacking, make_whole
from weir.trainer.versions.version_folder import (
    MANIFEST,
    FileEntry,
    Version,
    VersionManifest,
    read_manifest,
    verify_files,
    version_path,
    versions_folder,
)

logger = logging.getLogger("weir.trainer.versions.sources")
_POINTER = re.compile(r"versions/(\d{8})\.json")


class Source(Protocol):
    """Versions as a machine offers them to others."""

    def numbers(self) -> list[int]:
        """The versions, oldest first."""
        ...

    def manifest(self, number: int) -> bytes | None:
        """The manifest of a version, or None without that version."""
        ...

    def offers(self, number: int, name: str) -> bool:
        """Whether a file that has a delta can also be had whole."""
        ...

    def fetch(self, number: int, manifest: bytes, name: str, target: Path) -> None:
        """Copy a file of a version. Raises FileNotFoundError where it is gone."""
        ...


class SharedVersions:
    """The versions in object storage."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def numbers(self) -> list[int]:
        found = (_POINTER.fullmatch(name) for name in self._objects.names("versions"))
        return [int(pointer[1]) for pointer in found if pointer]

    def manifest(self, number: int) -> bytes | None:
        return self._objects.read(pointer_key(number))

    def offers(self, number: int, name: str) -> bool:
        return False

    def fetch(self, number: int, manifest: bytes, name: str, target: Path) -> None:
        self._objects.fetch(f"{files_prefix(number, manifest)}/{name}", target)


class FolderVersions:
    """The versions in the folder of a store, of this machine or mounted."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def numbers(self) -> list[int]:
        folder = versions_folder(self._root)
        return sorted(int(file.parent.name) for file in folder.glob("[0-9]" * 8 + f"/{MANIFEST}"))

    def manifest(self, number: int) -> bytes | None:
        file = version_path(self._root, number) / MANIFEST
        return file.read_bytes() if file.exists() else None

    def offers(self, number: int, name: str) -> bool:
        return (version_path(self._root, number) / name).exists()

    def fetch(self, number: int, manifest: bytes, name: str, target: Path) -> None:
        shutil.copyfile(version_path(self._root, number) / name, target)


def source_of(store: StoreConfig) -> Source:
    """The versions of a store, for other machines and for helpers beside engines."""
    objects = objects_of(store)
    return FolderVersions(store.folder) if objects is None else SharedVersions(objects)


def pointer_key(number: int) -> str:
    """The key of a version's manifest in object storage."""
    return f"versions/{number:08d}.json"


def files_prefix(number: int, manifest: bytes) -> str:
    """The prefix of a version's files; the manifest's hash separates two trainers' files of the same number."""
    return f"versions/{number:08d}/{hashlib.sha256(manifest).hexdigest()[:16]}"


def fetch(
    source: Source, root: Path, number: int, *, whole: bool = True, wanted: Callable[[str], bool] = lambda _: True
) -> Version:
    """A version of a source in its folder under `root`, with its files that are `wanted`; fetched unless it is there.

    The versions that it is rebuilt from come first, as they are stored; with `whole` its own files are rebuilt. Raises
    `VersionError` where it is damaged or cannot be rebuilt, or where neither the source nor `root` has it.
    """
    folder, text = version_path(root, number), source.manifest(number)
    if text is None:
        return Version(path=folder, manifest=read_manifest(folder))
    manifest = msgspec.json.decode(text, type=VersionManifest)
    if not (folder / MANIFEST).exists() or (folder / MANIFEST).read_bytes() != text:
        by_delta = [name for name in manifest.deltas if not whole or not _has_whole(source, root, manifest, name)]
        try:
            _fetch_files(source, root, text, by_delta, whole=whole, wanted=wanted)
        except VersionError as error:
            if not by_delta or not all(source.offers(number, name) for name in by_delta):
                raise
            logger.warning("%s; the whole files of version %d are fetched instead", error, number)
            _fetch_files(source, root, text, [], whole=whole, wanted=wanted)
    elif lacking(folder, manifest):
        _fetch_base(source, root, manifest, wanted)
        if whole:
            make_whole(folder)
    return Version(path=folder, manifest=manifest)


def _fetch_files(
    source: Source, root: Path, text: bytes, by_delta: list[str], *, whole: bool, wanted: Callable[[str], bool]
) -> None:
    """Make the folder of a version by its manifest; the files that come `by_delta` are rebuilt, with `whole`."""
    manifest = msgspec.json.decode(text, type=VersionManifest)
    folder = version_path(root, manifest.version)
    if by_delta:
        _fetch_base(source, root, manifest, wanted)
    entries: dict[str, FileEntry] = {name: entry for name, entry in manifest.files.items() if name not in by_delta}
    entries |= {name + SUFFIX: manifest.deltas[name] for name in by_delta}
    entries = {name: entry for name, entry in entries.items() if wanted(name)}
    with folder_aside(folder, replace=True) as aside:
        (aside / MANIFEST).write_bytes(text)
        for name in entries:
            source.fetch(manifest.version, text, name, aside / name)
        verify_files(aside, entries)
        if whole:
            make_whole(aside, siblings=folder.parent)
        for file in aside.iterdir():
            fsync(file)


def _has_whole(source: Source, root: Path, manifest: VersionManifest, name: str) -> bool:
    """Whether a whole file is to be fetched: where it is offered, and the base of its delta is not here."""
    assert manifest.base is not None
    return source.offers(manifest.version, name) and not (version_path(root, manifest.base) / name).exists()


def _fetch_base(source: Source, root: Path, manifest: VersionManifest, wanted: Callable[[str], bool]) -> None:
    if manifest.base is None:
        raise VersionError(f"version {manifest.version} has deltas and names no base: its manifest is damaged")
    fetch(source, root, manifest.base, whole=False, wanted=wanted)
