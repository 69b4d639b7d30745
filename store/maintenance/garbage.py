"""Garbage collection: deletes compacted segments, replaced files, and the leftovers of crashes.

Invariants: nothing is deleted that a live snapshot reads, or that was part of the store within the grace. A Parquet
file that the catalog does not name is deleted only where each of its calls is stored elsewhere with the same tokens, or
was removed by retention. A segment with records behind a bad frame is quarantined first. Running again after a crash
completes the work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import FileSet, file_set
from weir.store.catalog.garbage import Deletable, ReplacedFile, deletable, note_deleted, replaced_paths
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.disk import Disk
from weir.store.errors import StoreCorrupt
from weir.store.log.salvage import has_records_behind_damage
from weir.store.log.segment_format import list_segments
from weir.store.maintenance.quarantine import quarantine
from weir.store.maintenance.retention import without_retired
from weir.store.parquet.call_file import SUFFIX
from weir.store.parquet.files import read_calls, read_row_groups
from weir.store.shared.files import delete_old_log, fetch_files
from weir.store.shared.object_store import objects_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """What was deleted, and what waits for readers with an older snapshot."""

    segments: int
    files: int
    leftovers: int = 0  # leftovers of crashes: half-written files, and files that were never named
    bytes: int = 0
    waiting: int = 0
    readers: tuple[str, ...] = ()


def delete_unneeded(catalog: Catalog, config: StoreConfig, disk: Disk) -> Garbage:
    """Delete what the catalog reports as deletable. The caller holds the compactor's lock."""
    delete_old_log(config, catalog, now_us() - int(config.segment_grace_s * 1e6))
    found = deletable(catalog, config.segment_grace_s)
    segments, segment_bytes = _delete_segments(config, disk, found)
    files, file_bytes = _delete_files(config, disk, found.files)
    if segments or files:
        note_deleted(catalog, segments, files)
    return Garbage(
        segments=len(segments),
        files=len(files),
        bytes=segment_bytes + file_bytes,
        waiting=found.waiting,
        readers=tuple(found.readers),
    )


def _delete_segments(config: StoreConfig, disk: Disk, found: Deletable) -> tuple[list[str], int]:
    here = {segment.segment_id: segment for segment in list_segments(config.log_dir)}
    deleted, num_bytes, folders = [], 0, set()
    for segment_id in found.segment_ids:
        if not (config.log_dir / segment_id).parent.is_dir():
            continue  # it is on its writer's machine
        if segment_id in here:  # else it was deleted just before a crash
            num_bytes += here[segment_id].path.stat().st_size
            if segment_id in found.damaged and has_records_behind_damage(here[segment_id]):
                quarantine(config, disk, here[segment_id].path)
            disk.unlink(here[segment_id].path)
            folders.add(here[segment_id].folder)
        deleted.append(segment_id)
    for folder in folders:
        disk.sync_folder(folder)  # after a power cut nothing would delete a file that came back
    return deleted, num_bytes


def _delete_files(config: StoreConfig, disk: Disk, files: list[ReplacedFile]) -> tuple[list[str], int]:
    num_bytes = 0
    for file in files:
        path = config.folder / file.path
        if path.exists():
            num_bytes += path.stat().st_size
        disk.unlink(path)
    if files:
        disk.make_folder(config.data_dir)
        disk.sync_folder(config.data_dir)
    objects = objects_of(config)
    if objects is not None:
        objects.delete([file.path for file in files])
    return [file.file_id for file in files], num_bytes


def found_garbage(catalog: Catalog, config: StoreConfig) -> Garbage:
    """What `delete_unneeded` and `delete_leftovers` would delete now. Changes nothing."""
    found = deletable(catalog, config.segment_grace_s)
    segments = {one.segment_id: one.path for one in list_segments(config.log_dir)}
    going = [segments[segment_id] for segment_id in found.segment_ids if segment_id in segments]
    files = [config.folder / file.path for file in found.files]
    left = list(_leftovers(catalog, config))
    return Garbage(
        segments=len(going),
        files=len(files),
        leftovers=len(left),
        bytes=sum(path.stat().st_size for path in [*going, *files, *left] if path.exists()),
        waiting=found.waiting,
        readers=tuple(found.readers),
    )


def delete_leftovers(catalog: Catalog, config: StoreConfig, disk: Disk) -> tuple[int, int]:
    """Delete leftovers of crashes in the folder of files; returns their number and bytes. The caller holds the lock."""
    count = num_bytes = 0
    for path in _leftovers(catalog, config):
        count, num_bytes = count + 1, num_bytes + path.stat().st_size
        disk.unlink(path)
    if count:
        disk.sync_folder(config.data_dir)
    return count, num_bytes


def _leftovers(catalog: Catalog, config: StoreConfig) -> Iterator[Path]:
    before = time.time() - config.segment_grace_s
    with catalog.reading().begin() as connection:
        known = file_set(connection)
    for path in unnamed_files(catalog, config, known):
        is_old = path.stat().st_mtime <= before
        is_copy = isinstance(config.root, str)  # the copy of an object that left the store, or was never in it
        if is_old and (is_copy or path.suffix != SUFFIX or is_stored_elsewhere(catalog, config, path, known)):
            yield path


def unnamed_files(catalog: Catalog, config: StoreConfig, known: FileSet) -> Iterator[Path]:
    """Files in the folder that are neither part of the store nor waiting for deletion."""
    named = {file.path for file in known.files} | replaced_paths(catalog)
    for path in sorted(config.data_dir.iterdir()) if config.data_dir.is_dir() else []:
        if path.is_file() and str(path.relative_to(config.folder)) not in named:
            yield path


def is_stored_elsewhere(catalog: Catalog, config: StoreConfig, path: Path, known: FileSet) -> bool:
    """Whether every call of a file is in a file of the store with the same tokens, or was removed by retention.

    False where the file cannot be read.
    """
    fetch_files(config, [file.path for file in known.files])
    paths = [config.folder / file.path for file in known.files]
    try:
        for table in read_row_groups(path):
            table = without_retired(catalog, table)
            ends = dict(zip(table["call_id"].to_pylist(), table["end_hash"].to_pylist(), strict=True))
            stored = read_calls(paths, {"call_id": list(ends)}, ["call_id", "end_hash"])
            found = dict(zip(stored["call_id"].to_pylist(), stored["end_hash"].to_pylist(), strict=True))
            if any(found.get(call_id) != end for call_id, end in ends.items()):
                return False
    except StoreCorrupt:
        return False
    return True
