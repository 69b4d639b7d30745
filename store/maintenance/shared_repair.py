"""Repairs objects of a store: restores them from copies, adopts orphans of crashes, gives up what has no copy left.

Invariants: only a bad object is replaced by a whole copy; the calls of an orphan are stored before its object is
deleted. An orphan that is garbage is deleted only after a publication of its own, so that a compactor that stalled
since it put the object is refused when it tries to name it. The caller holds the compactor's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import Publication, file_set, publish
from weir.store.catalog.shared_segments import add_shared_segment, compacted_segments, remove_shared_segments
from weir.store.config import StoreConfig
from weir.store.maintenance.garbage import is_stored_elsewhere
from weir.store.maintenance.shared_survey import SharedSurvey, old_orphans, segment_of, survey_orphans
from weir.store.shared.object_store import Objects, objects_of


@dataclass(slots=True, kw_only=True)
class SharedRepair:
    """What was done about objects."""

    restored: int = 0  # restored from a copy
    taken_in: int = 0  # orphaned segments of the log
    given_up: int = 0  # segments without a copy here
    fetched: dict[str, Path] = field(default_factory=dict)  # orphaned files by key, to be adopted from their copies


def repair_objects(catalog: Catalog, config: StoreConfig, found: SharedSurvey) -> SharedRepair:
    """Repair damaged and missing objects, except for the content of files."""
    objects = objects_of(config)
    done = SharedRepair()
    if objects is None:
        return done
    for key in found.restorable:
        objects.delete([key])
        objects.put(key, config.folder / key, named_by_content=segment_of(key) is None)
        done.restored += 1
    gone = [segment for key in found.lost if (segment := segment_of(key)) and not (config.folder / key).exists()]
    remove_shared_segments(catalog, gone)
    done.given_up = len(gone)
    orphans = {one.key: segment_of(one.key) for one in found.orphans}
    compacted = compacted_segments(catalog, [segment for segment in orphans.values() if segment is not None])
    for one in found.orphans:
        segment = orphans[one.key]
        if segment is not None and segment not in compacted:
            add_shared_segment(catalog, segment, one.num_bytes)
            done.taken_in += 1
        elif segment is None:
            objects.fetch(one.key, config.folder / one.key)
            done.fetched[one.key] = config.folder / one.key
    return done


def delete_objects(config: StoreConfig, keys: Sequence[str]) -> None:
    """Delete the objects of adopted orphans."""
    objects = objects_of(config)
    if objects is not None:
        objects.delete(keys)


def delete_orphans(catalog: Catalog, config: StoreConfig) -> tuple[int, int]:
    """Delete orphans whose calls are all stored elsewhere; returns their number and bytes."""
    objects = objects_of(config)
    if objects is None:
        return 0, 0
    with catalog.reading().begin() as connection:
        known = file_set(connection)
    old = old_orphans(survey_orphans(catalog, objects, known), config.orphan_grace_s)
    segments = {one.key: segment_of(one.key) for one in old}
    compacted = compacted_segments(catalog, [segment for segment in segments.values() if segment is not None])
    if old:
        publish(catalog, Publication(), known.generation)
    count = num_bytes = 0
    for one in old:
        segment = segments[one.key]
        if segment in compacted if segment is not None else _holds_nothing_new(catalog, config, objects, one.key):
            objects.delete([one.key])
            count, num_bytes = count + 1, num_bytes + one.num_bytes
    return count, num_bytes


def _holds_nothing_new(catalog: Catalog, config: StoreConfig, objects: Objects, key: str) -> bool:
    copy = config.folder / key
    objects.fetch(key, copy)
    with catalog.reading().begin() as connection:
        known = file_set(connection)
    try:
        return is_stored_elsewhere(catalog, config, copy, known)
    finally:
        copy.unlink()
