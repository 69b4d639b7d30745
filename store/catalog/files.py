"""The Parquet files of the store, and the log segments that each contains.

Invariants: a segment is in one file. All changes of a publication become visible in one transaction, so that a reader
sees a segment's calls in the log or in a file, never in both. Each publication has the next generation number; of two
that were prepared from the same generation, one is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, IntegrityError

from weir.store.catalog import schema as t
from weir.store.catalog.age import advance_age
from weir.store.catalog.catalog import Catalog, in_portions
from weir.store.catalog.engine import Area, database_now_us
from weir.store.catalog.retention import refuse_needed, remove_groups
from weir.store.catalog.rows import CompactedSegment, FileGroup, FileRow, FileSession
from weir.store.config import StoreConfig
from weir.store.errors import CompactionRunning, SchemaTooNew, StoreUnavailable
from weir.store.records.call_record import SCHEMA_VERSION
from weir.store.records.tree import CallRole, Link

_UNNOTED = ~sa.exists().where(t.file_sessions.c.file_id == t.files.c.file_id)  # by an earlier Weir


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    """The contents of the store in one transaction of the catalog."""

    generation: int
    files: list[FileRow]
    compacted: frozenset[str]  # ids of the segments whose calls are in `files`
    relinks: dict[str, Link]


def file_set(connection: sa.Connection) -> FileSet:
    """The store's files, inside the caller's transaction. Raises SchemaTooNew where a later Weir wrote one."""
    files = connection.execute(sa.select(t.files).order_by(t.files.c.created_us, t.files.c.file_id))
    relinks = {}
    for row in connection.execute(sa.select(t.relinks)):
        place = dict(row._mapping)
        call_id = place.pop("call_id")
        relinks[call_id] = Link(**{**place, "role": CallRole(row.role)})
    return FileSet(
        generation=generation_now(connection),
        files=[_known_file(row) for row in files],
        compacted=frozenset(connection.scalars(sa.select(t.file_sources.c.segment_id))),
        relinks=relinks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What is in the Parquet files of a store; the log may have more calls."""

    files: int
    num_bytes: int
    num_calls: int


def file_totals(catalog: Catalog) -> Totals:
    """Counts over all files, without reading them. Raises StoreUnavailable."""
    columns = sa.select(sa.func.count(), sa.func.sum(t.files.c.num_bytes), sa.func.sum(t.files.c.num_calls))
    try:
        with catalog.reading().begin() as connection:
            files, num_bytes, num_calls = connection.execute(columns).one()
    except DatabaseError as error:
        raise StoreUnavailable(
            f"cannot read the catalog: {error.orig}; check that it is there and can be read"
        ) from error
    return Totals(files=files, num_bytes=int(num_bytes or 0), num_calls=int(num_calls or 0))


def generation_now(connection: sa.Connection) -> int:
    """The number of the latest publication; 0 before the first."""
    return connection.scalar(sa.select(sa.func.max(t.publications.c.generation))) or 0


def files_with_groups(connection: sa.Connection, group_ids: Collection[str]) -> list[FileRow]:
    """The files that have calls of these groups, or whose groups are unknown, oldest first."""
    known = sa.exists().where(t.file_groups.c.file_id == t.files.c.file_id)
    found = {row.file_id: row for row in connection.execute(sa.select(t.files).where(~known))}
    for some in in_portions(list(group_ids)):
        query = sa.select(t.files).join(t.file_groups).where(t.file_groups.c.group_id.in_(some)).distinct()
        found.update((row.file_id, row) for row in connection.execute(query))
    ordered = sorted(found.values(), key=lambda row: (row.created_us, row.file_id))
    return [_known_file(row) for row in ordered]


def files_of_sessions(
    connection: sa.Connection, session_ids: Collection[str], group_ids: Collection[str]
) -> frozenset[str] | None:
    """The ids of the files with calls of these groups, or of any group of these sessions; None: it may be any."""
    if connection.scalar(sa.select(t.files.c.file_id).where(_UNNOTED).limit(1)) is not None:
        return None
    s = t.file_sessions.c
    in_files: set[str] = set()
    for some in in_portions(list(session_ids)):
        in_files.update(connection.scalars(sa.select(s.group_id).where(s.session_id.in_(some)).distinct()))
    return frozenset(file.file_id for file in files_with_groups(connection, in_files.union(group_ids)))


def unnoted_files(connection: sa.Connection) -> dict[str, str]:
    """The paths of files whose sessions are not known, by the files' ids."""
    rows = connection.execute(sa.select(t.files.c.file_id, t.files.c.path).where(_UNNOTED))
    return {row.file_id: row.path for row in rows}


def note_sessions(connection: sa.Connection, file_id: str, sessions: Sequence[FileSession]) -> None:
    """Note the sessions of a file that is in the catalog; nothing where it is gone or noted already."""
    is_there = connection.scalar(sa.select(t.files.c.file_id).where(t.files.c.file_id == file_id, _UNNOTED))
    rows = [{"session_id": one.session_id, "group_id": one.group_id, "file_id": file_id} for one in sessions]
    if is_there and rows:
        connection.execute(t.file_sessions.insert(), rows)


def _known_file(row: sa.Row[Any]) -> FileRow:
    if row.schema_version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"cannot read {row.path}: it has schema version {row.schema_version}, this Weir knows up to "
            f"{SCHEMA_VERSION}; install the version of Weir that wrote it, or a later one"
        )
    return FileRow(**row._mapping)


@dataclass(slots=True, kw_only=True)
class FileChange:
    """A file that enters the store, and what it replaces."""

    file: FileRow | None = None  # None: nothing was left to write
    groups: list[FileGroup] = field(default_factory=list)  # of the new file, as are the sessions
    sessions: list[FileSession] = field(default_factory=list)
    digests: dict[str, bytes] = field(default_factory=dict)  # of the histories that its new calls end, by call id
    sources: Sequence[CompactedSegment] = ()  # segments whose calls are in the file
    replaced: Sequence[FileRow] = ()  # files that leave the store: their calls are in the new file, or removed
    holds_replaced: bool = True  # True if the new file holds every call of the replaced ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """Groups that retention removes from the store, whole."""

    group_ids: Sequence[str]
    config: StoreConfig


@dataclass(slots=True, kw_only=True)
class Publication:
    """A change of the store's contents, collected while it is prepared."""

    changes: list[FileChange] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)  # calls whose current place in the tree is written in a new file
    removed: list[str] = field(default_factory=list)  # calls that leave the store
    moved: dict[str, Link] = field(default_factory=dict)  # new places in the tree of calls in other files
    reopened: list[str] = field(default_factory=list)  # segments to compact again
    retired: Retired | None = None


def publish(catalog: Catalog, change: Publication, generation: int) -> None:
    """Apply a change that was prepared from `generation`. Raises CompactionRunning where a later one exists."""
    try:
        areas = (Area.RECORDS, Area.BUDGETS) if change.retired is not None else (Area.RECORDS,)
        with catalog.writing(*areas).begin() as connection:
            now = database_now_us(connection)
            latest = generation_now(connection)
            if latest != generation:
                raise _overtaken(generation, latest)
            if change.retired is not None:
                refuse_needed(connection, change.retired.config, change.retired.group_ids, now)
            age_us = advance_age(connection, now)
            connection.execute(t.publications.insert().values(generation=generation + 1, published_us=now))
            for some in in_portions(change.removed):
                connection.execute(t.call_ends.delete().where(t.call_ends.c.call_id.in_(some)))
            for one in change.changes:
                _enter(connection, one, age_us)
                _enter_sources(connection, one, generation + 1, now)
                _take_out(connection, one, generation + 1, now)
                _enter_digests(connection, one)
            for some in in_portions(change.reopened):
                for table in (t.file_sources, t.segments):
                    connection.execute(table.delete().where(table.c.segment_id.in_(some)))
            _relink(connection, change)
            if change.retired is not None:
                remove_groups(connection, change.retired.group_ids, now)
    except IntegrityError as error:
        raise _overtaken(generation, generation + 1) from error


def _overtaken(prepared: int, latest: int) -> CompactionRunning:
    return CompactionRunning(
        f"cannot publish what was prepared from generation {prepared} of the store: another process published "
        f"generation {latest} meanwhile; nothing was changed, run it again"
    )


def _enter(connection: sa.Connection, change: FileChange, age_us: int) -> None:
    if change.file is None:
        return
    connection.execute(t.files.insert().values(asdict(change.file)))
    came = _ages_by_group(connection, [file.file_id for file in change.replaced]) if change.replaced else None
    rows = [
        {
            **asdict(group),
            "file_id": change.file.file_id,
            "age_us": age_us if came is None else came.get(group.group_id),
        }
        for group in change.groups
    ]
    if rows:
        connection.execute(t.file_groups.insert(), rows)
    note_sessions(connection, change.file.file_id, change.sessions)


def _ages_by_group(connection: sa.Connection, file_ids: Sequence[str]) -> dict[str, int | None]:
    """The age of the store when the latest calls of each group entered these files."""
    f = t.file_groups.c
    query = sa.select(f.group_id, sa.func.max(f.age_us).label("age_us")).where(f.file_id.in_(file_ids))
    return {row.group_id: row.age_us for row in connection.execute(query.group_by(f.group_id))}


def _enter_digests(connection: sa.Connection, change: FileChange) -> None:
    if change.file is not None and change.digests:
        ends = [{"call_id": c, "digest": d, "file_id": change.file.file_id} for c, d in change.digests.items()]
        connection.execute(t.call_ends.insert(), ends)


def _enter_sources(connection: sa.Connection, change: FileChange, generation: int, now_us: int) -> None:
    file_id = None if change.file is None else change.file.file_id
    for source in change.sources:
        row = {**asdict(source), "compacted_us": now_us, "generation": generation}
        connection.execute(t.segments.insert().values(row))
        connection.execute(t.file_sources.insert().values(segment_id=source.segment_id, file_id=file_id))


def _take_out(connection: sa.Connection, change: FileChange, generation: int, now_us: int) -> None:
    file_id = None if change.file is None else change.file.file_id
    for file in change.replaced:
        for table in (t.file_groups, t.file_sessions):
            connection.execute(table.delete().where(table.c.file_id == file.file_id))
        if file_id is None or not change.holds_replaced:
            connection.execute(t.call_ends.delete().where(t.call_ends.c.file_id == file.file_id))
        for table in (t.file_sources, t.call_ends):
            connection.execute(table.update().where(table.c.file_id == file.file_id).values(file_id=file_id))
        connection.execute(t.files.delete().where(t.files.c.file_id == file.file_id))
        row = {"file_id": file.file_id, "path": file.path, "num_bytes": file.num_bytes}
        connection.execute(t.replaced_files.insert().values(**row, replaced_us=now_us, generation=generation))


def _relink(connection: sa.Connection, change: Publication) -> None:
    for some in in_portions([*change.settled, *change.removed, *change.moved]):
        connection.execute(t.relinks.delete().where(t.relinks.c.call_id.in_(some)))
    if change.moved:
        connection.execute(t.relinks.insert(), [_relink_row(name, place) for name, place in change.moved.items()])


def _relink_row(call_id: str, place: Link) -> dict[str, Any]:
    return {"call_id": call_id, **asdict(place), "role": place.role.value}
