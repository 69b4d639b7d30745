"""Repairs the damage that a survey found, as far as the bytes allow, and destroys nothing.

Invariants: every file or segment is quarantined before it leaves the store; a call enters the store only where its
prompt can be rebuilt and matches its hash, and only where it is not stored already. Running again after a crash
completes the work. Repair rebuilds catalog rows from Parquet files, files from the log where its segments still exist,
and segments from the whole frames behind a bad one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import FileChange, Publication, file_set, publish
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.disk import Disk
from weir.store.log.salvage import salvaged_records
from weir.store.log.segment_format import Segment, list_segments
from weir.store.log.writer import LogWriter
from weir.store.maintenance.quarantine import quarantine
from weir.store.maintenance.retention import without_retired
from weir.store.maintenance.shared_repair import delete_objects, repair_objects
from weir.store.maintenance.survey import FileDamage, Survey
from weir.store.parquet.call_file import file_id_of, write_call_file
from weir.store.parquet.files import ReadableRowGroups, read_calls

WRITER = "repaired"  # log writer of salvaged records


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Counts of one repair."""

    salvaged: int  # calls behind bad frames of segments, stored again
    reopened: int  # segments to compact again, because their file was damaged
    adopted: int  # calls of files that the catalog did not name, now stored
    left_out: int  # calls that are only in quarantine, or unreadable
    quarantined: list[str]
    restored: int = 0  # objects restored from a copy
    given_up: int = 0  # segments in object storage that no copy is left of


def repair(catalog: Catalog, config: StoreConfig, disk: Disk, found: Survey) -> Repair:
    """Repair what a survey found. The caller holds the compactor's lock, and compacts afterwards."""
    aside: list[str] = []
    shared = repair_objects(catalog, config, found.shared)
    reopened, left_out = _repair_files(catalog, config, disk, found.files, aside)
    adopted, not_adopted = _adopt(catalog, config, disk, [*found.unnamed, *shared.fetched.values()], aside)
    delete_objects(config, list(shared.fetched))
    return Repair(
        salvaged=_salvage(catalog, config, disk, [segment for segment, _ in found.segments], aside),
        reopened=reopened,
        adopted=adopted,
        left_out=left_out + not_adopted,
        quarantined=aside,
        restored=shared.restored,
        given_up=shared.given_up,
    )


def _repair_files(
    catalog: Catalog, config: StoreConfig, disk: Disk, damage: list[FileDamage], aside: list[str]
) -> tuple[int, int]:
    """Rewrite the sound calls of damaged files; returns the number of segments to compact again, and of lost calls."""
    if not damage:
        return 0, 0
    change, kept = Publication(), 0
    for one in damage:
        if not one.is_missing:
            aside.append(str(quarantine(config, disk, config.folder / one.file.path)))
        change.changes.append(_repaired_file(config, disk, one))
        change.removed.extend(one.broken)
        kept += sum(group.num_calls for group in change.changes[-1].groups)
    with catalog.reading().begin() as connection:
        generation = file_set(connection).generation
        files = [one.file.file_id for one in damage]
        sources = list(
            connection.scalars(sa.select(t.file_sources.c.segment_id).where(t.file_sources.c.file_id.in_(files)))
        )
    here = {segment.segment_id for segment in list_segments(config.log_dir)}
    change.reopened = [segment_id for segment_id in sources if segment_id in here]
    publish(catalog, change, generation)
    return len(change.reopened), sum(one.file.num_calls for one in damage) - kept


def _repaired_file(config: StoreConfig, disk: Disk, damage: FileDamage) -> FileChange:
    """The sound calls of a damaged file, in a file of their own."""
    change = FileChange(replaced=[damage.file], holds_replaced=False)
    if damage.is_missing:
        return change
    broken = pa.array(list(damage.broken), pa.string())

    def sound() -> Iterator[pa.Table]:
        for table in ReadableRowGroups(config.folder / damage.file.path).tables():
            left = table.filter(pc.invert(pc.is_in(table["call_id"], broken)))
            change.digests.update(_digests(left))
            yield left

    file_id = file_id_of(["mended", damage.file.file_id, *sorted(damage.broken)])
    written = write_call_file(config, disk, file_id, sound(), damage.file.created_us)
    if written is not None:
        change.file, change.groups, change.sessions = written
    return change


def _digests(table: pa.Table) -> dict[str, bytes]:
    pairs = zip(table["call_id"].to_pylist(), table["digest"].to_pylist(), strict=True)
    return {call_id: digest for call_id, digest in pairs if digest}


def _adopt(catalog: Catalog, config: StoreConfig, disk: Disk, paths: list[Path], aside: list[str]) -> tuple[int, int]:
    """Add the calls of unnamed files that the store lacks; returns how many were added, and how many cannot be."""
    adopted = not_adopted = 0
    in_log = pa.array(sorted(_names_in_log(catalog, config)) if paths else [], pa.string())
    for path in paths:
        with catalog.reading().begin() as connection:
            known = file_set(connection)
        stored = [config.folder / file.path for file in known.files]
        tables = (without_retired(catalog, table) for table in ReadableRowGroups(path).tables())
        fresh = [_without_stored(table, stored, in_log) for table in tables]
        sound = _with_bases(fresh, stored)
        change = FileChange(digests={call: digest for table in sound for call, digest in _digests(table).items()})
        written = write_call_file(config, disk, file_id_of(["adopted", path.name]), iter(sound), now_us())
        if written is not None:
            change.file, change.groups, change.sessions = written
            publish(catalog, Publication(changes=[change]), known.generation)
        taken = sum(table.num_rows for table in sound)
        adopted, not_adopted = adopted + taken, not_adopted + sum(table.num_rows for table in fresh) - taken
        aside.append(str(quarantine(config, disk, path)))
        disk.unlink(path)
        disk.sync_folder(path.parent)
    return adopted, not_adopted


def _names_in_log(catalog: Catalog, config: StoreConfig) -> set[str]:
    """The calls of segments that are in no file: compaction will store them."""
    with catalog.reading().begin() as connection:
        compacted = file_set(connection).compacted
    waiting = [segment for segment in list_segments(config.log_dir) if segment.segment_id not in compacted]
    return {record.call_id for segment in waiting for record in segment.read().records}


def _stored_names(catalog: Catalog, config: StoreConfig, names: list[str]) -> set[str]:
    with catalog.reading().begin() as connection:
        paths = [config.folder / file.path for file in file_set(connection).files]
    return set(read_calls(paths, {"call_id": names}, ["call_id"])["call_id"].to_pylist()) if names else set()


def _without_stored(table: pa.Table, stored: list[Path], in_log: pa.Array) -> pa.Table:
    there = read_calls(stored, {"call_id": table["call_id"].to_pylist()}, ["call_id"])
    known = pa.concat_arrays([there["call_id"].combine_chunks(), in_log])
    return table.filter(pc.invert(pc.is_in(table["call_id"], known)))


def _with_bases(tables: list[pa.Table], stored: list[Path]) -> list[pa.Table]:
    """The calls whose bases, and the bases of those, are among them or stored."""
    while True:
        names = {name for table in tables for name in table["call_id"].to_pylist()}
        bases = {name for table in tables for name in table["base_call"].to_pylist() if name is not None} - names
        there = set(read_calls(stored, {"call_id": sorted(bases)}, ["call_id"])["call_id"].to_pylist())
        if bases <= there:
            return tables
        gone = pa.array(sorted(bases - there), pa.string())
        tables = [table.filter(pc.invert(pc.is_in(table["base_call"], gone))) for table in tables]


def _salvage(catalog: Catalog, config: StoreConfig, disk: Disk, segments: list[Segment], aside: list[str]) -> int:
    """Append the records behind bad frames to a log of its own, and quarantine the damaged segments."""
    rescued = 0
    for segment in segments:
        there = {record.call_id for record in segment.read().records} | _names_in_log(catalog, config)
        records = [record for record in salvaged_records(segment.path) if record.call_id not in there]
        there = _stored_names(catalog, config, [record.call_id for record in records])
        records = [record for record in records if record.call_id not in there]
        if not records:
            continue
        aside.append(str(quarantine(config, disk, segment.path)))
        log = LogWriter(config.folder, WRITER, config, disk)
        for record in records:  # one at a time: the queue is bounded
            log.append(record).result()
        log.close()
        rescued += len(records)
    return rescued
