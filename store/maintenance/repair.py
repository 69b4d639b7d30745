"""What a survey found is mended as far as the bytes allow, and nothing is destroyed.

Invariants: whatever leaves the store lies under `set-aside/` before it leaves; a call enters the store only when its
prompt can be built up and matches its hash, and only when it is not there already. Run again after a crash, it does
what was left to do. Rebuilt are: catalog rows from Parquet files, files from the log where its segments are still
there, segments from the whole frames behind a bad one. Not here: finding damage (survey.py).
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
from weir.store.log.salvage import rescued_records
from weir.store.log.segment_format import Segment, list_segments
from weir.store.log.writer import LogWriter
from weir.store.maintenance.quarantine import keep_aside
from weir.store.maintenance.retention import without_retired
from weir.store.maintenance.shared_repair import delete_objects, repair_objects
from weir.store.maintenance.survey import FileDamage, Survey
from weir.store.parquet.call_file import file_id_of, write_call_file
from weir.store.parquet.files import ReadableRowGroups, read_calls

WRITER = "repaired"  # under whose name rescued records are appended


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What was mended."""

    rescued: int  # calls behind bad frames of segments
    reopened: int  # segments that are compacted again, because a file of theirs was damaged
    adopted: int  # calls of files that the catalog did not name
    left_out: int  # calls that are in `set-aside/` only, or in no readable byte
    set_aside: list[str]
    restored: int = 0  # objects put again from a copy
    given_up: int = 0  # segments in object storage of which nothing is left


def repair(catalog: Catalog, config: StoreConfig, disk: Disk, found: Survey) -> Repair:
    """Mend what a survey found. The caller holds the compactor's lock, and compacts afterwards."""
    aside: list[str] = []
    shared = repair_objects(catalog, config, found.shared)
    reopened, left_out = _mend_files(catalog, config, disk, found.files, aside)
    adopted, not_adopted = _adopt(catalog, config, disk, [*found.unnamed, *shared.fetched.values()], aside)
    delete_objects(config, list(shared.fetched))
    return Repair(
        rescued=_rescue(catalog, config, disk, [segment for segment, _ in found.segments], aside),
        reopened=reopened,
        adopted=adopted,
        left_out=left_out + not_adopted,
        set_aside=aside,
        restored=shared.restored,
        given_up=shared.given_up,
    )


def _mend_files(
    catalog: Catalog, config: StoreConfig, disk: Disk, damage: list[FileDamage], aside: list[str]
) -> tuple[int, int]:
    """Write what is sound of damaged files anew. Returns how many segments are compacted again, and calls left out."""
    if not damage:
        return 0, 0
    change, kept = Publication(), 0
    for one in damage:
        if not one.is_missing:
            aside.append(str(keep_aside(config, disk, config.folder / one.file.path)))
        change.changes.append(_mended(config, disk, one))
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


def _mended(config: StoreConfig, disk: Disk, damage: FileDamage) -> FileChange:
    """The damaged file's sound calls in a file of their own."""
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
        change.file, change.groups = written
    return change


def _digests(table: pa.Table) -> dict[str, bytes]:
    pairs = zip(table["call_id"].to_pylist(), table["digest"].to_pylist(), strict=True)
    return {call_id: digest for call_id, digest in pairs if digest}


def _adopt(catalog: Catalog, config: StoreConfig, disk: Disk, paths: list[Path], aside: list[str]) -> tuple[int, int]:
    """Take the calls of unnamed files into the store that are not there. Returns how many, and how many cannot be."""
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
            change.file, change.groups = written
            publish(catalog, Publication(changes=[change]), known.generation)
        taken = sum(table.num_rows for table in sound)
        adopted, not_adopted = adopted + taken, not_adopted + sum(table.num_rows for table in fresh) - taken
        aside.append(str(keep_aside(config, disk, path)))
        disk.unlink(path)
        disk.sync_folder(path.parent)
    return adopted, not_adopted


def _names_in_log(catalog: Catalog, config: StoreConfig) -> set[str]:
    """The calls of the segments that are in no file: compaction will take them."""
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
    """Without the calls that build on one that is neither among them nor stored, and those that build on these."""
    while True:
        names = {name for table in tables for name in table["call_id"].to_pylist()}
        bases = {name for table in tables for name in table["base_call"].to_pylist() if name is not None} - names
        there = set(read_calls(stored, {"call_id": sorted(bases)}, ["call_id"])["call_id"].to_pylist())
        if bases <= there:
            return tables
        gone = pa.array(sorted(bases - there), pa.string())
        tables = [table.filter(pc.invert(pc.is_in(table["base_call"], gone))) for table in tables]


def _rescue(catalog: Catalog, config: StoreConfig, disk: Disk, segments: list[Segment], aside: list[str]) -> int:
    """Append what lies behind bad frames to a log of its own, and set the segments' damaged form aside."""
    rescued = 0
    for segment in segments:
        there = {record.call_id for record in segment.read().records} | _names_in_log(catalog, config)
        records = [record for record in rescued_records(segment.path) if record.call_id not in there]
        there = _stored_names(catalog, config, [record.call_id for record in records])
        records = [record for record in records if record.call_id not in there]
        if not records:
            continue
        aside.append(str(keep_aside(config, disk, segment.path)))
        log = LogWriter(config.folder, WRITER, config, disk)
        for record in records:  # one at a time: the queue is bounded
            log.append(record).result()
        log.close()
        rescued += len(records)
    return rescued
