"""A consistent view of the recorded set: the files of one catalog transaction, and the log segments not in them.

Invariants: a call is in a snapshot once; every call that was acknowledged before the snapshot began is in it. The log
is listed before the catalog is read, so that segments compacted in between are found in their file. A generation is
pinned before the catalog is read, so that what is read is of that generation or a later one, and none of it is deleted.
No transaction is open while the log is read, since that would hold back SQLite's checkpoints; what entered files
meanwhile is read from the log or from those files. Folders of Parquet files are never listed.

Of a store in S3, the files of the asked sessions' groups are fetched. Where the whole store is asked for, readers read
ranges of a file, unless it is small, on this machine already, or has calls of groups that are in the log too: those are
linked with each other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import sqlalchemy as sa

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import FileSet, file_set, files_of_sessions, files_with_groups, generation_now
from weir.store.config import StoreConfig
from weir.store.errors import StoreUnavailable
from weir.store.log.segment_format import Segment, SegmentContents, list_segments
from weir.store.query.pin import SnapshotPin
from weir.store.records.call_record import CallRecord
from weir.store.shared.files import fetch_log
from weir.store.shared.local_copies import Copies
from weir.store.shared.lost_calls import collect_lost_calls

WHOLE_BYTES = 2**20  # files up to this size are fetched whole: one request costs less than several
ATTEMPTS = 3  # a segment may be deleted while a slow snapshot is taken; then it is retried

Rows = list[tuple[object, ...]]
Log = Mapping[Segment, SegmentContents]  # what was read of each segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The recorded set at one moment."""

    root: Path
    fileset: FileSet  # where some sessions were asked for, with the files of their groups
    hot: list[CallRecord]  # in the log and in no file
    unread: list[Segment]  # of those, the segments that were not read to their end
    tables: Mapping[str, Rows]  # the requested catalog tables, at the moment when the files were first looked up
    pin: SnapshotPin  # its files are kept until this is released
    ranged: frozenset[str]  # ids of the files that are read by ranges from object storage

    @property
    def paths(self) -> list[Path]:
        """The Parquet files that are here, oldest first: with every call of the groups of `hot`."""
        return [self.root / file.path for file in self.fileset.files if file.file_id not in self.ranged]


def take_snapshot(
    config: StoreConfig,
    tables: Sequence[sa.Table] = (),
    *,
    catalog: Catalog | None = None,
    sessions: Collection[str] | None = None,
) -> Snapshot:
    """Read the log and the catalog; the caller releases the snapshot's pin. Raises SchemaTooNew and StoreUnavailable.

    `catalog`, where given, must stay open until the pin is released; else one is opened. `sessions`: of the files,
    only those with calls of the groups of these sessions are needed, and only they are fetched.
    """
    own = catalog is None
    catalog = catalog or Catalog.open(config)
    pin = SnapshotPin(catalog, Copies(config), owns_catalog=own)
    try:
        collect_lost_calls(config, catalog)
        for _ in range(ATTEMPTS):
            fetch_log(config, catalog)
            segments = list_segments(config.log_dir)
            with catalog.writing().begin() as connection:
                pin.pin(connection)
            with catalog.reading().begin() as connection:  # writers need not wait while the tables are read
                fileset = file_set(connection)
                rows: dict[str, Rows] = {
                    table.name: [tuple(row) for row in connection.execute(sa.select(table))] for table in tables
                }
            try:
                log: Log = {s: s.read() for s in segments if s.segment_id not in fileset.compacted}
                needed: Collection[str] | None = None
                if sessions is not None or isinstance(config.root, str):
                    fileset, log, needed = _needed(catalog, fileset, segments, log, sessions)
                if sessions is not None and needed is not None:
                    fileset = replace(fileset, files=[file for file in fileset.files if file.file_id in needed])
                ranged = _ranged(config, fileset, needed)
                pin.copies.fetch([file.path for file in fileset.files if file.file_id not in ranged])
            except FileNotFoundError:
                continue
            if sessions is None:
                pin.copies.read_parts([file.path for file in fileset.files if file.file_id in ranged])
            hot, unread = records_of(log)
            pin.hold()
            return Snapshot(
                root=config.folder, fileset=fileset, hot=hot, unread=unread, tables=rows, pin=pin, ranged=ranged
            )
        raise StoreUnavailable(
            f"cannot read the log of {config.root}: its segments were deleted {ATTEMPTS} times while they were being "
            "read; raise store.segment_grace_s"
        )
    except BaseException:
        pin.release()
        raise


def _needed(
    catalog: Catalog, fileset: FileSet, segments: Sequence[Segment], log: Log, sessions: Collection[str] | None
) -> tuple[FileSet, Log, Collection[str] | None]:
    """The ids of the files with calls of the sessions' groups or (None) of groups in the log; None: it may be any.

    With the log without the segments that entered files while it was read, and the files then: which files are needed
    depends on the log, and the catalog says it of its latest generation only.
    """
    with catalog.reading().begin() as connection:
        if generation_now(connection) != fileset.generation:
            fileset = file_set(connection)
            left = [segment for segment in segments if segment.segment_id not in fileset.compacted]
            # A segment is new here only where a repair took it out of a file.
            log = {segment: log[segment] if segment in log else segment.read() for segment in left}
        records = [record for contents in log.values() for record in contents.records]
        if sessions is not None:
            asked = frozenset(sessions)
            groups = {record.group_id for record in records if record.session_id in asked}
            return fileset, log, files_of_sessions(connection, asked, groups)
        groups = {record.group_id for record in records}
        return fileset, log, {file.file_id for file in files_with_groups(connection, groups)} if groups else ()


def _ranged(config: StoreConfig, fileset: FileSet, needed: Collection[str] | None) -> frozenset[str]:
    """The ids of the files of which readers fetch ranges; None: all are needed whole."""
    if needed is None:
        return frozenset()
    return frozenset(
        file.file_id
        for file in fileset.files
        if file.file_id not in needed and file.num_bytes > WHOLE_BYTES and not (config.folder / file.path).exists()
    )


def records_of(log: Log) -> tuple[list[CallRecord], list[Segment]]:
    """The calls of some segments, duplicates removed; and the segments that were not read to their end."""
    records: dict[str, CallRecord] = {}
    for contents in log.values():
        for record in contents.records:
            records.setdefault(record.call_id, record)
    return list(records.values()), [segment for segment, contents in log.items() if contents.reason is not None]
