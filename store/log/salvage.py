"""Whole records behind a bad frame of a segment, where ordinary reading stops.

Invariant: what is given was framed with its checksum and is a call record; ordinary reading may give it too.
Not here: ordinary reading (segments.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from isal.isal_zlib import crc32

from weir.store.log.segment_format import FRAME, HEADER, Segment, SegmentContents, segment_schema
from weir.store.records.call_record import CallRecord, decode_record

# A record is a msgpack map whose first key is one of these; a map's own head takes one, three or five bytes.
_FIRST_KEYS = (b"\xa7call_id", b"\xa6schema")
_MAP_HEADS = (1, 3, 5)


def rescued_records(path: Path) -> list[CallRecord]:
    """Every whole record of a segment, wherever it lies in it."""
    data = path.read_bytes()
    schema = segment_schema(data[: HEADER.size]) if data[:7] == b"WEIRLOG" else segment_schema(b"")
    found: dict[int, CallRecord] = {}
    for key in _FIRST_KEYS:
        for offset in _frames(data, key):
            try:
                record = decode_record(_payload(data, offset))
            except msgspec.MsgspecError:
                continue
            found[offset] = record if schema == record.schema else msgspec.structs.replace(record, schema=schema)
    return [record for _, record in sorted(found.items())]


def holds_more_than_is_read(segment: Segment) -> bool:
    """Whether there are whole records behind the frame where reading stops."""
    return len(rescued_records(segment.path)) > len(segment.read().records)


def frames_dropped(segment: Segment, contents: SegmentContents) -> int:
    """How many frames of a segment were not read: the bad ones that were met, and the whole ones behind them."""
    if contents.reason is None:
        return 0
    return contents.frames_dropped + len(rescued_records(segment.path)) - len(contents.records)


def _frames(data: bytes, key: bytes) -> Iterator[int]:
    """Offsets of whole frames whose record begins with a key."""
    at = data.find(key)
    while at >= 0:
        for head in _MAP_HEADS:
            offset = at - head - FRAME.size
            if offset >= 0 and _is_whole(data, offset):
                yield offset
        at = data.find(key, at + 1)


def _payload(data: bytes, offset: int) -> bytes:
    length, _ = FRAME.unpack_from(data, offset)
    return data[offset + FRAME.size : offset + FRAME.size + length]


def _is_whole(data: bytes, offset: int) -> bool:
    length, crc = FRAME.unpack_from(data, offset)
    if not 0 < length <= len(data) - offset - FRAME.size:
        return False
    return crc32(_payload(data, offset), crc32(data[offset : offset + 4])) == int(crc)
