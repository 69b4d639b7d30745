"""Which groups may lack calls because a segment of the log is damaged in its middle.

Invariant: a torn end, as every crash leaves one, is no damage: no whole record lies behind it. A group may lack calls
where whole records of it lie behind a bad frame and are stored nowhere else, and, until the segment is compacted, where
a bad frame bears its name or one of its sessions has no call. Repair (repair.py) stores what lies behind, and compacts.
Not here: segments that are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
import sqlalchemy as sa

from weir.store import catalog_schema as t
from weir.store.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.records import CallRecord
from weir.store.rescue import rescued_records
from weir.store.segments import Segment, list_segments

SessionCalls = Mapping[str, Collection[str]]  # session → its calls that can be read


def groups_lacking_calls(
    config: StoreConfig, catalog: Catalog, hot: Sequence[Segment], groups: Mapping[str, SessionCalls]
) -> dict[str, str]:
    """Of some groups those that may lack calls, each with the path of the damaged segment.

    `hot` are the segments in no file of which not all could be read.
    """
    found: dict[str, str] = {}
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
                    found.setdefault(group_id, str(path))
    for segment in _compacted(config, catalog):
        records = _behind_a_bad_frame(segment)
        for group_id, sessions in groups.items():
            if _lacks(records, group_id, sessions):
                found.setdefault(group_id, str(segment.path))
    return found


def _behind_a_bad_frame(segment: Segment) -> list[CallRecord]:
    """All whole records of a segment, where reading stops before the last of them; none elsewhere."""
    path = segment.path if segment.path.exists() else segment.sealed_path
    try:
        records = rescued_records(path)
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
    """Whether the group's name is there once more than whole records of it: then a bad frame has it."""
    name = msgspec.msgpack.encode("group_id") + msgspec.msgpack.encode(group_id)
    return data.count(name) > sum(record.group_id == group_id for record in records)


def _compacted(config: StoreConfig, catalog: Catalog) -> Iterator[Segment]:
    """Segments in a file without what lies behind their bad frames, as long as they are still in the log."""
    c = t.segments.c
    query = sa.select(c.segment_id).where(c.reason.is_not(None), c.frames_dropped > 1, c.deleted_us.is_(None))
    with catalog.reading().begin() as connection:
        ids = set(connection.scalars(query))
    yield from (segment for segment in list_segments(config.log_dir) if segment.segment_id in ids) if ids else ()
