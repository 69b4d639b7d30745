"""Groups that may lack calls because a segment of the log is damaged in its middle, or missing.

Invariant: a torn end, as every crash leaves one, is not damage: no whole record follows it. A group may lack calls
where whole records of it follow a bad frame and are stored nowhere else; and, until the segment is compacted, where
a bad frame contains its name or one of its sessions has no call. Repair stores the records after bad frames, and
compacts. A group may also lack calls where one of its sessions has none and a missing segment may be younger than the
group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.log.salvage import salvaged_records
from weir.store.log.segment_format import Segment, list_segments
from weir.store.maintenance.missing_segments import missing_segments_of
from weir.store.records.call_record import CallRecord

DAMAGED = (
    "{} is damaged in its middle and may hold more calls of it; `weir store verify --repair` brings back what can be "
    "read, and the next round takes the group"
)
GONE = (
    "{} is gone, and a session of it has no call; put the file back from a copy, or an empty one in its place if "
    "there is none, and the next round takes the group"
)

SessionCalls = Mapping[str, Collection[str]]  # session → its calls that can be read


def groups_lacking_calls(
    config: StoreConfig, catalog: Catalog, hot: Sequence[Segment], groups: Mapping[str, SessionCalls]
) -> dict[str, str]:
    """Those of the given groups that may lack calls, each with the reason and what to do.

    `hot` are the segments in no file that were not read to their end.
    """
    damaged = {group_id: DAMAGED.format(path) for group_id, path in _of_damaged(config, catalog, hot, groups).items()}
    silent = {group_id for group_id, sessions in groups.items() if not all(sessions.values())}
    return damaged | {group_id: GONE.format(path) for group_id, path in _of_gone(config, catalog, silent).items()}


def _of_gone(config: StoreConfig, catalog: Catalog, group_ids: Collection[str]) -> dict[str, Path]:
    gone = missing_segments_of(config, catalog) if group_ids else []
    if not gone:
        return {}
    query = sa.select(t.groups.c.group_id, t.groups.c.created_us).where(t.groups.c.group_id.in_(group_ids))
    with catalog.reading().begin() as connection:
        begun = {row.group_id: row.created_us for row in connection.execute(query)}
    return {
        group_id: segment.path
        for group_id, created_us in begun.items()
        for segment in gone
        if segment.before_us is None or created_us < segment.before_us
    }


def _of_damaged(
    config: StoreConfig, catalog: Catalog, hot: Sequence[Segment], groups: Mapping[str, SessionCalls]
) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for segment in hot:
        if records := _behind_a_bad_frame(segment):
            path = segment.path if segment.path.exists() else segment.sealed_path
            data = path.read_bytes()
            for group_id, sessions in groups.items():
                if (
                    _lacks(records, group_id, sessions)
                    or _is_named(data, records, group_id)
                    or not all(sessions.values())
                ):
                    found.setdefault(group_id, path)
    for segment in _compacted(config, catalog):
        records = _behind_a_bad_frame(segment)
        for group_id, sessions in groups.items():
            if _lacks(records, group_id, sessions):
                found.setdefault(group_id, segment.path)
    return found


def _behind_a_bad_frame(segment: Segment) -> list[CallRecord]:
    """All whole records of a segment where ordinary reading stops before the last of them; else none."""
    path = segment.path if segment.path.exists() else segment.sealed_path
    try:
        records = salvaged_records(path)
        return records if len(records) > len(segment.read().records) else []
    except FileNotFoundError:  # compacted and deleted since it was listed
        return []


def _lacks(records: Sequence[CallRecord], group_id: str, sessions: SessionCalls) -> bool:
    return any(
        record.group_id == group_id
        and record.session_id in sessions
        and record.call_id not in sessions[record.session_id]
        for record in records
    )


def _is_named(data: bytes, records: Sequence[CallRecord], group_id: str) -> bool:
    """Whether the group's name occurs more often than in whole records of it: then a bad frame contains it."""
    name = msgspec.msgpack.encode("group_id") + msgspec.msgpack.encode(group_id)
    return data.count(name) > sum(record.group_id == group_id for record in records)


def _compacted(config: StoreConfig, catalog: Catalog) -> Iterator[Segment]:
    """Compacted segments whose records behind bad frames are in no file, while they are still in the log."""
    c = t.segments.c
    query = sa.select(c.segment_id).where(c.reason.is_not(None), c.frames_dropped > 1, c.deleted_us.is_(None))
    with catalog.reading().begin() as connection:
        ids = set(connection.scalars(query))
    yield from (segment for segment in list_segments(config.log_dir) if segment.segment_id in ids) if ids else ()
