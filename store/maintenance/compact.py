"""Compaction: sealed log segments become one sorted Parquet file per run, and small files are merged into larger ones.

Invariants: a segment's calls are in the log or in one file, also after a crash at any moment; a file is complete and
synced before the catalog names it; a segment is deleted only when the catalog names its file, after a grace for readers
with an older snapshot. Running again after a crash completes the work: the file's name is derived from its segments, so
that a file that was never named is overwritten. Parents that arrive late change the places of calls stored before them,
not their bytes.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import FileChange, Publication, file_set, files_with_groups, publish
from weir.store.catalog.leases import COMPACTION, held_lease
from weir.store.catalog.rows import CompactedSegment
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.disk import SYSTEM_DISK, Disk
from weir.store.errors import CompactionRunning, LeaseHeld
from weir.store.log.salvage import frames_dropped
from weir.store.log.segment_format import Segment, SegmentContents, list_segments
from weir.store.log.segment_writer import SEAL_REQUEST
from weir.store.log.writer import lock_file, seal_left_open
from weir.store.maintenance.file_sessions import note_earlier_files
from weir.store.maintenance.garbage import delete_unneeded
from weir.store.maintenance.merge import merge_files
from weir.store.maintenance.retention import Retirement, retire_groups
from weir.store.parquet.call_file import file_id_of, write_call_file
from weir.store.parquet.columns import call_table
from weir.store.parquet.files import ROW_GROUP_CALLS
from weir.store.parquet.placement import Placement, place
from weir.store.records.call_record import CallRecord
from weir.store.records.tree import Link
from weir.store.shared.files import fetch_files, fetch_log
from weir.store.shared.local_copies import all_copies
from weir.store.shared.log import share_left_behind
from weir.store.shared.lost_calls import collect_lost_calls
from weir.store.spill import delete_abandoned_spills

FILE_BYTES = 256 * 2**20  # log bytes that go into one file: what compaction holds in memory
SEAL_WAIT_S = 5.0
LEASE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """Counts of one compaction."""

    segments: int
    calls: int
    bytes_in: int
    bytes_out: int
    bytes_dropped: int = 0
    files_merged: int = 0
    retirement: Retirement = field(default_factory=Retirement)


def compact(config: StoreConfig, seal_open: bool = False, disk: Disk = SYSTEM_DISK) -> CompactReport:
    """Move all sealed segments into Parquet, including those that dead writers left open.

    `seal_open` asks live writers to seal what they are writing, and waits up to five seconds for it. Raises
    CompactionRunning where another process compacts, SchemaTooNew, StoreCorrupt and StoreUnavailable.
    """
    report = CompactReport(segments=0, calls=0, bytes_in=0, bytes_out=0)
    catalog = Catalog.open(config)
    try:
        with only_compactor(config, catalog):
            collect_lost_calls(config, catalog, disk)
            seal_left_open(config.log_dir, disk)
            share_left_behind(config, catalog)
            if seal_open:
                _request_seals(config.log_dir)
            fetch_log(config, catalog)
            for chosen in _batches(_waiting(catalog, config.log_dir)):
                report = _add(report, _compact_segments(catalog, config, disk, chosen))
            merged = merge_files(catalog, config, disk)
            note_earlier_files(catalog, config)
            retirement = retire_groups(catalog, config, disk)
            delete_unneeded(catalog, config, disk)
            delete_abandoned_spills(config)
    finally:
        catalog.close()
    return replace(report, files_merged=merged, retirement=retirement)


@contextlib.contextmanager
def only_compactor(config: StoreConfig, catalog: Catalog) -> Iterator[None]:
    """Hold this machine's lock and the store-wide lease of compaction.

    Avoids duplicate work; a primary key ensures that no segment is in two files. Raises CompactionRunning where another
    process holds them.
    """
    holder = f"{socket.gethostname()}:{config.folder.absolute()}"
    with contextlib.ExitStack() as turn:
        try:
            turn.callback(os.close, lock_file(config.folder / "compact.lock"))
            turn.enter_context(held_lease(catalog, COMPACTION, holder, LEASE_S))
            turn.enter_context(all_copies(config))
        except (BlockingIOError, LeaseHeld) as error:
            raise CompactionRunning(
                f"cannot compact {config.root}: another process is doing it; wait for it to end"
            ) from error
        yield


def _add(total: CompactReport, part: CompactReport) -> CompactReport:
    return CompactReport(
        segments=total.segments + part.segments,
        calls=total.calls + part.calls,
        bytes_in=total.bytes_in + part.bytes_in,
        bytes_out=total.bytes_out + part.bytes_out,
        bytes_dropped=total.bytes_dropped + part.bytes_dropped,
    )


def _request_seals(log_dir: Path) -> None:
    """Request a seal from every writer with an open segment, and wait until they have sealed."""
    asked = [segment for segment in list_segments(log_dir) if not segment.sealed]
    for segment in asked:
        (segment.folder / SEAL_REQUEST).touch()
    deadline = time.monotonic() + SEAL_WAIT_S
    while time.monotonic() < deadline and any(segment.path.exists() for segment in asked):
        time.sleep(0.02)


def _waiting(catalog: Catalog, log_dir: Path) -> list[Segment]:
    segments = [segment for segment in list_segments(log_dir) if segment.sealed]
    with catalog.reading().begin() as connection:
        compacted = file_set(connection).compacted
    return [segment for segment in segments if segment.segment_id not in compacted]


def _batches(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    batch: list[Segment] = []
    num_bytes = 0
    for segment in segments:
        size = segment.path.stat().st_size
        if batch and num_bytes + size > FILE_BYTES:
            yield batch
            batch, num_bytes = [], 0
        batch.append(segment)
        num_bytes += size
    if batch:
        yield batch


def _compact_segments(catalog: Catalog, config: StoreConfig, disk: Disk, segments: Sequence[Segment]) -> CompactReport:
    with _uncollected():
        records: dict[str, CallRecord] = {}
        sources: list[CompactedSegment] = []
        for segment in segments:
            contents = segment.read()
            for record in contents.records:
                records.setdefault(record.call_id, record)
            sources.append(_source(segment, contents))
        with catalog.reading().begin() as connection:
            known = file_set(connection)
            files = files_with_groups(connection, {record.group_id for record in records.values()})
        fetch_files(config, [file.path for file in files])
        paths = [config.folder / file.path for file in files]
        placements = _placements(list(records.values()), paths, known.relinks)
        change = _write_file(config, disk, sources, placements)
    publish(catalog, change, known.generation)
    [written] = change.changes
    return CompactReport(
        segments=len(sources),
        calls=written.file.num_calls if written.file is not None else 0,
        bytes_in=sum(source.num_bytes for source in sources),
        bytes_out=written.file.num_bytes if written.file is not None else 0,
        bytes_dropped=sum(source.bytes_dropped for source in sources),
    )


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the garbage collector, which takes a third of the time: a batch makes many objects and no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _placements(
    records: Sequence[CallRecord], paths: Sequence[Path], known_moves: Mapping[str, Link]
) -> Iterator[Placement]:
    """The records ordered by group, placed a few whole groups at a time."""
    chunk: list[CallRecord] = []
    for _, members in itertools.groupby(sorted(records, key=_group), _group):
        chunk.extend(members)
        if len(chunk) >= ROW_GROUP_CALLS:
            yield place(chunk, paths, known_moves)
            chunk = []
    if chunk:
        yield place(chunk, paths, known_moves)


def _group(record: CallRecord) -> str:
    return record.group_id


def _source(segment: Segment, contents: SegmentContents) -> CompactedSegment:
    return CompactedSegment(
        segment_id=segment.segment_id,
        num_records=len(contents.records),
        num_bytes=segment.path.stat().st_size,
        bytes_dropped=contents.bytes_dropped,
        frames_dropped=frames_dropped(segment, contents),
        reason=contents.reason,
    )


def _write_file(
    config: StoreConfig, disk: Disk, sources: Sequence[CompactedSegment], placements: Iterable[Placement]
) -> Publication:
    """Write the file of a batch; no reader knows of it until it is published."""
    entering = FileChange(sources=sources)
    change = Publication(changes=[entering])
    file_id = file_id_of([source.segment_id for source in sources])
    written = write_call_file(config, disk, file_id, _tables(placements, change), now_us())
    if written is not None:
        entering.file, entering.groups, entering.sessions = written
    return change


def _tables(placements: Iterable[Placement], change: Publication) -> Iterator[pa.Table]:
    """The new calls as tables; their digests and counts are added to the change on the way."""
    for placed in placements:
        change.moved.update(placed.moved)
        change.changes[0].digests.update({record.call_id: record.digest for record in placed.fresh if record.digest})
        yield call_table(placed.fresh, placed.places, placed.end_hashes)
