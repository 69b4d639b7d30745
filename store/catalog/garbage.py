"""The catalog's word on what can be deleted: segments that are compacted, files that are replaced, and who reads them.

Invariants: what a living snapshot's generation consists of is not deletable; a snapshot is dead when it was not renewed
within the lease, was then doubted, and was not renewed within the lease after that either, so that no jump of the clock
makes a living one dead. Not here: deleting (garbage.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.age import grow_older
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import database_now_us
from weir.store.catalog.files import generation_now

SNAPSHOT_LEASE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedFile:
    """A file that is no part of the store any more; `path` is relative to the store's root."""

    file_id: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletable:
    """What no reader needs, and how many files wait for readers."""

    segment_ids: list[str]
    damaged: frozenset[str]  # those of them that could not be read to their end
    files: list[ReplacedFile]
    waiting: int
    readers: list[str]  # whom they wait for


def pin_generation(connection: sa.Connection, snapshot_id: str, holder: str) -> None:
    """Inside a writer's transaction: this reader reads what the store consists of now, and nothing older."""
    connection.execute(t.snapshots.delete().where(t.snapshots.c.snapshot_id == snapshot_id))
    row = {"generation": generation_now(connection), "holder": holder, "seen_us": database_now_us(connection)}
    connection.execute(t.snapshots.insert().values(snapshot_id=snapshot_id, **row))


def renew_snapshot(catalog: Catalog, snapshot_id: str) -> bool:
    """Say that the reader is alive. False: it was taken for dead."""
    with catalog.writing().begin() as connection:
        mine = t.snapshots.c.snapshot_id == snapshot_id
        now = database_now_us(connection)
        row = {"seen_us": now, "doubted_us": None}
        return connection.execute(t.snapshots.update().where(mine).values(row)).rowcount == 1


def release_snapshot(catalog: Catalog, snapshot_id: str) -> None:
    """Say that the reader is done."""
    with catalog.writing().begin() as connection:
        connection.execute(t.snapshots.delete().where(t.snapshots.c.snapshot_id == snapshot_id))


def deletable(catalog: Catalog, grace_s: float) -> Deletable:
    """What was compacted or replaced longer ago than the grace, and is in no living snapshot."""
    with catalog.writing().begin() as connection:
        now = database_now_us(connection)
        grow_older(connection, now)
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
    """Forget the snapshots that were doubted for a whole lease; doubt those that are silent, or from the future."""
    s, lease_us = t.snapshots.c, int(SNAPSHOT_LEASE_S * 1e6)
    connection.execute(t.snapshots.delete().where(s.doubted_us <= now_us - lease_us))
    later = s.doubted_us > now_us  # the clock went back since: doubted anew
    silent = (s.seen_us < now_us - lease_us) | (s.seen_us > now_us + lease_us)
    doubtful = later | (s.doubted_us.is_(None) & silent)
    connection.execute(t.snapshots.update().where(doubtful).values(doubted_us=now_us))


def _take_back_the_future(connection: sa.Connection, now_us: int) -> None:
    """A clock went back since these left the store: their grace begins now, and not when it has caught up."""
    for column in (t.replaced_files.c.replaced_us, t.segments.c.compacted_us):
        connection.execute(column.table.update().where(column > now_us).values({column: now_us}))


def replaced_paths(catalog: Catalog) -> set[str]:
    """The files that wait for their deletion, relative to the store's root."""
    with catalog.reading().begin() as connection:
        return set(connection.scalars(sa.select(t.replaced_files.c.path)))


def note_deleted(catalog: Catalog, segment_ids: Sequence[str], file_ids: Sequence[str]) -> None:
    """Say that these are gone from the disk."""
    with catalog.writing().begin() as connection:
        now = database_now_us(connection)
        for segment_id in segment_ids:
            chosen = t.segments.c.segment_id == segment_id
            connection.execute(t.segments.update().where(chosen).values(deleted_us=now))
        for file_id in file_ids:
            connection.execute(t.replaced_files.delete().where(t.replaced_files.c.file_id == file_id))
