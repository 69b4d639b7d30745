"""Compares object storage with the catalog: objects that are missing, changed, or unknown.

Invariants: nothing in object storage is changed. Afterwards this machine has a copy of every readable object, a whole
one where one exists; a whole copy can replace its object. Unknown objects with names of ours are orphans, which crashes
leave; others are foreign and left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import FileSet
from weir.store.catalog.garbage import replaced_paths
from weir.store.catalog.shared_segments import compacted_segments, shared_segments
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.shared.files import content_digest, segment_key
from weir.store.shared.object_store import Listed, Objects

_FILE = re.compile(r"data/[0-9a-f]{32}-([0-9a-f]{16})\.parquet")
_SEGMENT = re.compile(r"log/([^/]+/\d{8})\.sealed\.wal")


@dataclass(slots=True, kw_only=True)
class SharedSurvey:
    """Everything wrong with the objects of a store: keys, and why."""

    restorable: dict[str, str] = field(default_factory=dict)  # bad, with a whole copy on this machine
    damaged: dict[str, str] = field(default_factory=dict)  # files without a whole copy
    lost: dict[str, str] = field(default_factory=dict)  # segments in no file, without a whole copy
    orphans: list[Listed] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @property
    def needs_repair(self) -> bool:
        """Whether the store lacks an object, or does not know one of its own."""
        return bool(self.restorable or self.damaged or self.lost or self.orphans)


def survey_objects(catalog: Catalog, config: StoreConfig, objects: Objects, known: FileSet) -> SharedSurvey:
    """Read every object of the store, and fetch those without a copy here."""
    found = SharedSurvey()
    listed = _listed(objects)
    for file in known.files:
        match = _FILE.fullmatch(file.path)
        expected = _Expected(key=file.path, num_bytes=file.num_bytes, digest=match[1] if match else None)
        _survey_object(objects, config.folder, expected, listed.get(file.path), found.damaged, found.restorable)
    shared = shared_segments(catalog)
    compacted = compacted_segments(catalog, shared)
    for segment_id, num_bytes in shared.items():
        if segment_id not in compacted:
            expected = _Expected(key=segment_key(segment_id), num_bytes=num_bytes, digest=None)
            _survey_object(objects, config.folder, expected, listed.get(expected.key), found.lost, found.restorable)
    _note_unknown(catalog, known, listed, found)
    return found


def survey_orphans(catalog: Catalog, objects: Objects, known: FileSet) -> SharedSurvey:
    """Find unknown objects only; none is read."""
    found = SharedSurvey()
    _note_unknown(catalog, known, _listed(objects), found)
    return found


def _listed(objects: Objects) -> dict[str, Listed]:
    return {one.key: one for folder in ("data", "log") for one in objects.listed(folder)}


def _note_unknown(catalog: Catalog, known: FileSet, listed: dict[str, Listed], found: SharedSurvey) -> None:
    segments = map(segment_key, shared_segments(catalog))
    named = {file.path for file in known.files} | replaced_paths(catalog) | set(segments)
    for key in sorted(listed.keys() - named):
        if _FILE.fullmatch(key) or _SEGMENT.fullmatch(key):
            found.orphans.append(listed[key])
        else:
            found.foreign.append(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected:
    key: str
    num_bytes: int
    digest: str | None  # of the content, where the name contains it


def _survey_object(
    objects: Objects,
    folder: Path,
    expected: _Expected,
    there: Listed | None,
    without_copy: dict[str, str],
    restorable: dict[str, str],
) -> None:
    """Note what is wrong with one object; ensure a copy of it, a whole one where one exists."""
    copy = folder / expected.key
    why = _problem(objects, expected, there)
    has_whole_copy = copy.exists() and _is_whole(copy, expected)
    if why is not None:
        (restorable if has_whole_copy else without_copy)[expected.key] = why
    elif copy.exists() and not has_whole_copy:
        copy.unlink()  # the object is whole
    if not copy.exists() and there is not None:
        objects.fetch(expected.key, copy)


def _problem(objects: Objects, expected: _Expected, there: Listed | None) -> str | None:
    if there is None:
        return "its object is gone"
    if there.num_bytes != expected.num_bytes:
        return f"its object has {there.num_bytes} bytes instead of {expected.num_bytes}"
    if expected.digest is not None and content_digest(objects.chunks(expected.key)) != expected.digest:
        return "its object has another content than its name says"
    return None


def _is_whole(path: Path, expected: _Expected) -> bool:
    if path.stat().st_size != expected.num_bytes:
        return False
    if expected.digest is None:
        return True
    with path.open("rb") as file:
        return content_digest(iter(lambda: file.read(2**20), b"")) == expected.digest


def segment_of(key: str) -> str | None:
    """The segment whose object has this key; None where it is not a segment's."""
    match = _SEGMENT.fullmatch(key)
    return match[1] if match else None


def old_orphans(found: SharedSurvey, grace_s: float) -> list[Listed]:
    """The orphans older than the grace: objects that are being shared now are not named yet."""
    return [one for one in found.orphans if one.changed_us <= now_us() - int(grace_s * 1e6)]
