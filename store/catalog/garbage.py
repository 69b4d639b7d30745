"""Deletable segments and files, and the snapshots that still read them.

Invariants: nothing that a live snapshot's generation contains is deletable. A snapshot is dead once it was silent for
one lease, was then marked as doubtful, and stayed silent for another lease, so that a jump of the clock alone never
makes a live one dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.age import advance_age
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import Area, database_now_us
from weir.store.catalog.files import generation_now

SNAPSHOT_LEASE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedFile:
    """A file that left the store; `path` is relative to the store's root."""

    file_id: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletable:
    """Segments and files that no reader needs, and the number of files that still wait for readers."""

    segment_ids: list[str]
    damaged: frozenset[str]  # those that could not be read to their end
    files: list[ReplacedFile]
    waiting: int
    readers: list[str]  # holders of the snapshots that they wait for


def pin_generation(connection: sa.Connection, snapshot_id: str, holder: str) -> None:
    """Register a reader of the current generation, inside a writer's transaction; returns the generation."""
    connection.execute(t.snapshots.delete().where(t.snapshots.c.snapshot_id == snapshot_id))
    row = {"generation": generation_now(connection), "holder": holder, "seen_us": database_now_us(connection)}
    connection.execute(t.snapshots.insert().values(snapshot_id=snapshot_id, **row))


def renew_snapshot(catalog: Catalog, snapshot_id: str) -> bool:
    """Renew a reader's lease. False: it expired, and its files may be deleted."""
    with catalog.writing(Area.READERS).begin() as connection:
        mine = t.snapshots.c.snapshot_id == snapshot_id
        now = database_now_us(connection)
        row = {"seen_us": now, "doubted_us": None}
        return connection.execute(t.snapshots.update().where(mine).values(row)).rowcount == 1


def release_snapshot(catalog: Catalog, snapshot_id: str) -> None:
    """Remove a reader's registration."""
    with catalog.writing(Area.READERS).begin() as connection:
        connection.execute(t.snapshots.delete().where(t.snapshots.c.snapshot_id == snapshot_id))


def deletable(catalog: Catalog, grace_s: float) -> Deletable:
    """What was compacted or replaced longer ago than the grace and is in no live snapshot."""
    with catalog.writing().begin() as connection:
        now = database_now_us(connection)
        advance_age(connection, now)
        _forget_dead(connection, now)
        _take_back_the_future(connection, now)
        readers = connection.execute(sa.select(t.snapshots)).all()
        oldest = min((reader.generation for reader in readers), default=generation_now(connection))
        before_us = now - int(grace_s * 1e6)
        old = (t.segments.c.compacted_us <= before_us) & t.segments.c.deleted_us.is_(None)
        unread = sa.func.coalesce(t.segments.c.generation, 0) <= oldest
        segments = connection.execute(sa.select(t.segments).where(old, unread)).all()
        replaced = connection.execute(sa.select(t.replaced_files).where(t.replaced_files.c.replaced_us <= before_us))
        files = [(row.generation, ReplacedFile(file_id=row.file_id, path=row.path)) for row in replaced]
    return Deletable(
        segment_ids=[row.segment_id for row in segments],
        damaged=frozenset(row.segment_id for row in segments if row.reason is not None),
        files=[file for generation, file in files if generation <= oldest],
        waiting=sum(generation > oldest for generation, _ in files),
        readers=[reader.holder for reader in readers if reader.generation == oldest],
    )


def _forget_dead(connection: sa.Connection, now_us: int) -> None:
    """Remove snapshots that were doubtful for a whole lease; mark those that are silent, or in the future."""
    s, lease_us = t.snapshots.c, int(SNAPSHOT_LEASE_S * 1e6)
    connection.execute(t.snapshots.delete().where(s.doubted_us <= now_us - lease_us))
    later = s.doubted_us > now_us  # the clock went back since: the doubt starts again
    silent = (s.seen_us < now_us - lease_us) | (s.seen_us > now_us + lease_us)
    doubtful = later | (s.doubted_us.is_(None) & silent)
    connection.execute(t.snapshots.update().where(doubtful).values(doubted_us=now_us))


def _take_back_the_future(connection: sa.Connection, now_us: int) -> None:
    """Restart the grace of rows whose time lies in the future, because a clock went back since."""
    for column in (t.replaced_files.c.replaced_us, t.segments.c.compacted_us):
        connection.execute(column.table.update().where(column > now_us).values({column: now_us}))


def replaced_paths(catalog: Catalog) -> set[str]:
    """The paths of files that wait for deletion, relative to the store's root."""
    with catalog.reading().begin() as connection:
        return set(connection.scalars(sa.select(t.replaced_files.c.path)))


def note_deleted(catalog: Catalog, segment_ids: Sequence[str], file_ids: Sequence[str]) -> None:
    """Record that these were deleted from the disk."""
    with catalog.writing().begin() as connection:
        now = database_now_us(connection)
        for segment_id in segment_ids:
            chosen = t.segments.c.segment_id == segment_id
            connection.execute(t.segments.update().where(chosen).values(deleted_us=now))
        for file_id in file_ids:
            connection.execute(t.replaced_files.delete().where(t.replaced_files.c.file_id == file_id))
