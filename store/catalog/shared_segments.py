"""Log segments in object storage, and how far each writer's log can be read by other machines.

Invariant: every call that a writer acknowledged before its `shared_us` is in object storage, or in a file of the store.
A writer has a row from before its first call until all of its calls are shared. Times are the database's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog, in_portions
from weir.store.catalog.engine import database_now_us, insert_if_absent

_W = t.log_writers.c


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWriterRow:
    """How far a writer's log is shared; `seen_us` is when its process last reported."""

    writer: str
    shared_us: int
    seen_us: int


def catalog_time_us(catalog: Catalog) -> int:
    """Unix time in microseconds by the clock that all users of the catalog share."""
    with catalog.reading().begin() as connection:
        return database_now_us(connection)


def set_shared_until(catalog: Catalog, writer: str, shared_us: int) -> None:
    """Record that all calls acknowledged before then are shared; creates the writer's row where it is missing."""
    with catalog.writing().begin() as connection:
        row = {"shared_us": shared_us, "seen_us": database_now_us(connection)}
        if connection.execute(t.log_writers.update().where(_W.writer == writer).values(row)).rowcount == 0:
            connection.execute(t.log_writers.insert().values(writer=writer, **row))


def log_writers(catalog: Catalog) -> list[LogWriterRow]:
    """The writers whose logs are not known to be shared completely."""
    with catalog.reading().begin() as connection:
        rows = connection.execute(sa.select(t.log_writers).order_by(_W.writer))
        return [LogWriterRow(**row._mapping) for row in rows]


def forget_log_writer(catalog: Catalog, writer: str) -> None:
    """Remove a writer: all of its calls are shared, or never will be."""
    with catalog.writing().begin() as connection:
        connection.execute(t.log_writers.delete().where(_W.writer == writer))


def add_shared_segment(catalog: Catalog, segment_id: str, num_bytes: int) -> None:
    """Record that a sealed segment is in object storage; idempotent."""
    with catalog.writing().begin() as connection:
        row = {"segment_id": segment_id, "num_bytes": num_bytes, "shared_us": database_now_us(connection)}
        connection.execute(insert_if_absent(connection, t.shared_segments, row))


def waiting_segments(catalog: Catalog) -> list[str]:
    """The segments in object storage that are in no file yet, by name."""
    compacted = sa.exists().where(t.segments.c.segment_id == t.shared_segments.c.segment_id)
    query = sa.select(t.shared_segments.c.segment_id).where(~compacted)
    with catalog.reading().begin() as connection:
        return list(connection.scalars(query.order_by(t.shared_segments.c.segment_id)))


def shared_segments(catalog: Catalog) -> dict[str, int]:
    """The segments that the catalog has in object storage, with their sizes in bytes."""
    with catalog.reading().begin() as connection:
        rows = connection.execute(sa.select(t.shared_segments).order_by(t.shared_segments.c.segment_id))
        return {row.segment_id: row.num_bytes for row in rows}


def compacted_segments(catalog: Catalog, segment_ids: Collection[str]) -> set[str]:
    """Those of these segments that are in a file of the store."""
    return _known(catalog, segment_ids, t.segments)


def unshared(catalog: Catalog, segment_ids: Collection[str]) -> set[str]:
    """Those of these segments that are neither in object storage nor in a file of the store."""
    return set(segment_ids) - _known(catalog, segment_ids, t.shared_segments) - _known(catalog, segment_ids, t.segments)


def compacted_before(catalog: Catalog, segment_ids: Collection[str], before_us: int) -> set[str]:
    """Those of these segments that entered a file before a time."""
    return _known(catalog, segment_ids, t.segments, t.segments.c.compacted_us <= before_us)


def deletable_objects(catalog: Catalog, before_us: int) -> list[str]:
    """The segments in object storage that entered a file before a time."""
    old = sa.exists().where(
        t.segments.c.segment_id == t.shared_segments.c.segment_id, t.segments.c.compacted_us <= before_us
    )
    with catalog.reading().begin() as connection:
        return list(connection.scalars(sa.select(t.shared_segments.c.segment_id).where(old)))


def remove_shared_segments(catalog: Catalog, segment_ids: Collection[str]) -> None:
    """Record that these are no longer in object storage."""
    with catalog.writing().begin() as connection:
        for segment_id in segment_ids:
            connection.execute(t.shared_segments.delete().where(t.shared_segments.c.segment_id == segment_id))


def _known(
    catalog: Catalog, segment_ids: Collection[str], table: sa.Table, more: sa.ColumnElement[bool] | None = None
) -> set[str]:
    ids = sorted(segment_ids)
    found: set[str] = set()
    with catalog.reading().begin() as connection:
        for some in in_portions(ids):
            chosen = table.c.segment_id.in_(some)
            found |= set(
                connection.scalars(sa.select(table.c.segment_id).where(chosen, *([] if more is None else [more])))
            )
    return found
