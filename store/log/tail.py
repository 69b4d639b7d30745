"""Follows the logs of a store: records appended since the last look, and older segments as far as wanted.

Invariants: a frame is given once; one that is still being written is given later. Segments that were sealed before the
first look are read from the newest back, only until the wanted call is found and up to a limit of bytes. Safe for one
thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
from isal.isal_zlib import crc32
from xxhash import xxh3_128_digest

from weir.store.log.segment_format import FRAME, HEADER, Segment, list_segments, opened_segment
from weir.store.records.call_record import CallRecord, FinishReason, decode_record


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSketch:
    """The fields of a record that identify it. Ids are packed as in the record."""

    call_id: str
    session_id: str
    group_id: str
    dialect: str
    finish: FinishReason
    prompt_ids: bytes
    output_ids: bytes
    digest: bytes
    num_messages: int
    forced: int
    request_id: str | None
    routed_from: int | None
    request_hash: bytes


class _Frame(msgspec.Struct):
    call_id: str
    session_id: str
    group_id: str
    dialect: str
    finish: FinishReason
    request: memoryview
    prompt_ids: bytes = b""
    output_ids: bytes = b""
    digest: bytes = b""
    num_messages: int = 0
    forced: int = 0
    request_id: str | None = None
    routed_from: int | None = None


def request_hash(dialect: str, body: bytes | memoryview) -> bytes:
    """A hash that requests of one wire form share only where they are equal byte for byte."""
    return xxh3_128_digest(dialect.encode() + b"\0" + xxh3_128_digest(body))


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a record in the log."""

    segment: Segment
    offset: int

    def read(self) -> CallRecord:
        """The whole record. Raises FileNotFoundError where its segment was deleted."""
        with opened_segment(self.segment) as file:
            head = os.pread(file.fileno(), FRAME.size, self.offset)
            length, _ = FRAME.unpack(head)
            return decode_record(os.pread(file.fileno(), length, self.offset + FRAME.size))


Found = tuple[CallSketch, Place]
_decode = msgspec.msgpack.Decoder(_Frame).decode


class LogTail:
    """Follows the logs of all writers."""

    def __init__(self, log_dir: Path, limit_bytes: int) -> None:
        self._log_dir = log_dir
        self._left_bytes = limit_bytes
        self._read_to: dict[Segment, int] = {}  # followed segments, and how far each was read
        self._ended: set[Segment] = set()
        self._older: list[Segment] | None = None  # sealed before the first look, the newest last

    def read(self, found: Callable[[CallSketch], bool]) -> list[Found]:
        """Give every record appended since the last look, then older ones until `found` returns true for one."""
        news: list[Found] = []
        for segment in self._newer():
            news.extend(self._read_on(segment))
        if any(found(sketch) for sketch, _ in news):
            return news
        return [*self._read_older(found), *news]

    def _newer(self) -> list[Segment]:
        """Segments that may have grown. At the first look, the sealed ones become the older ones."""
        listed = list_segments(self._log_dir)
        if self._older is None:
            self._older = sorted((segment for segment in listed if segment.sealed), key=_age)
        older = set(self._older)
        self._ended &= set(listed)
        return [segment for segment in listed if segment not in self._ended and segment not in older]

    def _read_older(self, found: Callable[[CallSketch], bool]) -> list[Found]:
        older: list[Found] = []
        while self._older and self._left_bytes > 0:
            calls = list(self._read_on(self._older.pop()))
            older = calls + older
            self._left_bytes -= sum(len(sketch.prompt_ids) + len(sketch.output_ids) for sketch, _ in calls)
            if any(found(sketch) for sketch, _ in calls):
                break
        return older

    def _read_on(self, segment: Segment) -> Iterator[Found]:
        try:
            file = opened_segment(segment)
        except FileNotFoundError:  # deleted since
            return
        with file:
            offset = self._read_to.get(segment, HEADER.size)
            for payload in _payloads(file, offset):
                sketch = _sketch(payload)
                if sketch is not None:
                    yield sketch, Place(segment, offset)
                offset += FRAME.size + len(payload)
        if segment.sealed:
            self._ended.add(segment)
            self._read_to.pop(segment, None)
        else:
            self._read_to[segment] = offset


def _payloads(file: BinaryIO, offset: int) -> Iterator[bytes]:
    """Whole frames from `offset` on, up to the first that is not whole yet."""
    file.seek(offset)
    while len(head := file.read(FRAME.size)) == FRAME.size:
        length, crc = FRAME.unpack(head)
        payload = file.read(length)
        if length == 0 or len(payload) < length or crc32(payload, crc32(head[:4])) != crc:
            return
        yield payload


def _sketch(payload: bytes) -> CallSketch | None:
    try:
        frame = _decode(payload)
    except msgspec.MsgspecError:  # of a later Weir, or torn: readers of the store report it, a look-up skips it
        return None
    fields = {name: getattr(frame, name) for name in _Frame.__struct_fields__ if name != "request"}
    return CallSketch(**fields, request_hash=request_hash(frame.dialect, frame.request))


def _age(segment: Segment) -> tuple[float, Segment]:
    """When a segment was last written, by its file's time."""
    try:
        with opened_segment(segment) as file:
            return os.fstat(file.fileno()).st_mtime, segment
    except FileNotFoundError:
        return 0.0, segment
