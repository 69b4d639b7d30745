"""The catalog's word on files: which Parquet files make up the store, and which log segments are in them.

Invariant: a segment is in one file. A file, its sources and the places that it changed become visible in one
transaction, so that a reader sees a segment's calls in the log or in a file, and never in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from weir.store import catalog_schema as t
from weir.store.catalog import Catalog
from weir.store.catalog_engine import now_us
from weir.store.catalog_rows import CompactedSegment, FileRow
from weir.store.errors import CompactionRunning
from weir.store.tree import CallRole, Link


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    """What the store consists of at one transaction of the catalog."""

    files: list[FileRow]
    compacted: frozenset[str]  # ids of the segments whose calls are in `files`
    relinks: dict[str, Link]


def file_set(connection: sa.Connection) -> FileSet:
    """The store's files, inside the caller's transaction."""
    files = connection.execute(sa.select(t.files).order_by(t.files.c.created_us, t.files.c.file_id))
    relinks = {}
    for row in connection.execute(sa.select(t.relinks)):
        place = dict(row._mapping)
        call_id = place.pop("call_id")
        relinks[call_id] = Link(**{**place, "role": CallRole(row.role)})
    return FileSet(
        files=[FileRow(**row._mapping) for row in files],
        compacted=frozenset(connection.scalars(sa.select(t.file_sources.c.segment_id))),
        relinks=relinks,
    )


def publish_file(
    catalog: Catalog,
    file: FileRow | None,
    sources: Sequence[CompactedSegment],
    moved: Mapping[str, Link],
    ends: Mapping[str, bytes],
) -> None:
    """Enter a file made of whole segments (None: they held no calls) and the new places of calls stored before.

    `ends` are the digests of the histories that the file's calls end, by call.
    """
    try:
        with catalog.writing().begin() as connection:
            if file is not None:
                connection.execute(t.files.insert().values(asdict(file)))
            for source in sources:
                connection.execute(t.segments.insert().values(**asdict(source), compacted_us=now_us()))
                file_id = file.file_id if file is not None else None
                connection.execute(t.file_sources.insert().values(segment_id=source.segment_id, file_id=file_id))
            if file is not None and ends:
                rows = [{"call_id": call, "digest": digest, "file_id": file.file_id} for call, digest in ends.items()]
                connection.execute(t.call_ends.insert(), rows)
            if moved:
                connection.execute(t.relinks.delete().where(t.relinks.c.call_id.in_(list(moved))))
                connection.execute(t.relinks.insert(), [_relink(call_id, place) for call_id, place in moved.items()])
    except IntegrityError as error:
        raise CompactionRunning(
            f"cannot publish {len(sources)} segments: another process compacted some of them meanwhile; run it again"
        ) from error


def _relink(call_id: str, place: Link) -> dict[str, Any]:
    return {"call_id": call_id, **asdict(place), "role": place.role.value}


def deletable_segments(catalog: Catalog, before_us: int) -> list[str]:
    """Segments that were compacted before a time and whose files have not been deleted."""
    old = t.segments.c.compacted_us <= before_us
    with catalog.reading().begin() as connection:
        return list(
            connection.scalars(sa.select(t.segments.c.segment_id).where(old, t.segments.c.deleted_us.is_(None)))
        )


def mark_deleted(catalog: Catalog, segment_ids: Sequence[str]) -> None:
    """Say that the files of these segments are gone."""
    with catalog.writing().begin() as connection:
        for segment_id in segment_ids:
            chosen = t.segments.c.segment_id == segment_id
            connection.execute(t.segments.update().where(chosen).values(deleted_us=now_us()))
