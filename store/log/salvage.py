"""Salvage: whole records behind a bad frame of a segment, where ordinary reading stops.

Invariant: every salvaged record has a valid checksum and decodes as a call record. Records that ordinary reading gives
may be among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from isal.isal_zlib import crc32

from weir.store.log.segment_format import FRAME, HEADER, Segment, SegmentContents, segment_schema
from weir.store.records.call_record import CallRecord, decode_record

# A record is a msgpack map whose first key is one of these; the map's head takes one, three or five bytes.
_FIRST_KEYS = (b"\xa7call_id", b"\xa6schema")
_MAP_HEADS = (1, 3, 5)


def salvaged_records(path: Path) -> list[CallRecord]:
    """Every whole record of a segment, wherever it lies."""
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


def has_records_behind_damage(segment: Segment) -> bool:
    """Whether whole records lie behind the frame where ordinary reading stops."""
    return len(salvaged_records(segment.path)) > len(segment.read().records)


def frames_dropped(segment: Segment, contents: SegmentContents) -> int:
    """The number of frames that were not read: bad ones, and whole ones behind them."""
    if contents.reason is None:
        return 0
    return contents.frames_dropped + len(salvaged_records(segment.path)) - len(contents.records)


def _frames(data: bytes, key: bytes) -> Iterator[int]:
    """Offsets of whole frames whose record begins with a known key."""
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
