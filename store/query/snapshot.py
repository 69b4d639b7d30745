"""A consistent view of the recorded set: the files of one catalog transaction, and the log segments not in them.

Invariants: a call is in a snapshot once; every call that was acknowledged before the snapshot began is in it. The log
is listed before the catalog is read, so that segments compacted in between are found in their file. A generation is
pinned before the catalog is read, so that what is read is of that generation or a later one, and none of it is deleted.
No transaction is open while the log is read, since that would hold back SQLite's checkpoints; what entered files
meanwhile is read from the log or from those files. Folders of Parquet files are never listed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import sqlalchemy as sa

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import FileSet, file_set, files_of_sessions, generation_now
from weir.store.config import StoreConfig
from weir.store.errors import StoreUnavailable
from weir.store.log.segment_format import Segment, SegmentContents, list_segments
from weir.store.query.pin import SnapshotPin
from weir.store.records.call_record import CallRecord
from weir.store.shared.files import fetch_log
from weir.store.shared.local_copies import Copies
from weir.store.shared.lost_calls import collect_lost_calls

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

    @property
    def paths(self) -> list[Path]:
        """The Parquet files, oldest first."""
        return [self.root / file.path for file in self.fileset.files]

    @property
    def paths_by_schema(self) -> dict[int, list[Path]]:
        """The Parquet files by their schema version."""
        found: dict[int, list[Path]] = {}
        for file in self.fileset.files:
            found.setdefault(file.schema_version, []).append(self.root / file.path)
        return found


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
                if sessions is not None:
                    fileset, log = _narrowed(catalog, fileset, segments, log, frozenset(sessions))
                pin.copies.fetch([file.path for file in fileset.files])
            except FileNotFoundError:
                continue
            hot, unread = records_of(log)
            pin.hold()
            return Snapshot(root=config.folder, fileset=fileset, hot=hot, unread=unread, tables=rows, pin=pin)
        raise StoreUnavailable(
            f"cannot read the log of {config.root}: its segments were deleted {ATTEMPTS} times while they were being "
            "read; raise store.segment_grace_s"
        )
    except BaseException:
        pin.release()
        raise


def _narrowed(
    catalog: Catalog, fileset: FileSet, segments: Sequence[Segment], log: Log, sessions: Collection[str]
) -> tuple[FileSet, Log]:
    """The files that the sessions need, and the log without the segments that entered files while it was read.

    Which files are needed depends on the log, and the catalog says it of its latest generation only.
    """
    with catalog.reading().begin() as connection:
        if generation_now(connection) != fileset.generation:
            fileset = file_set(connection)
            left = [segment for segment in segments if segment.segment_id not in fileset.compacted]
            # A segment is new here only where a repair took it out of a file.
            log = {segment: log[segment] if segment in log else segment.read() for segment in left}
        of_sessions = [r for contents in log.values() for r in contents.records if r.session_id in sessions]
        needed = files_of_sessions(connection, sessions, {record.group_id for record in of_sessions})
    if needed is not None:
        fileset = replace(fileset, files=[file for file in fileset.files if file.file_id in needed])
    return fileset, log


def records_of(log: Log) -> tuple[list[CallRecord], list[Segment]]:
    """The calls of some segments, duplicates removed; and the segments that were not read to their end."""
    records: dict[str, CallRecord] = {}
    for contents in log.values():
        for record in contents.records:
            records.setdefault(record.call_id, record)
    return list(records.values()), [segment for segment, contents in log.items() if contents.reason is not None]
