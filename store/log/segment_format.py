"""The format of log segments: how they are read and listed.

A segment is a 32-byte header and then frames: length (u32), crc32 of length and payload (u32), payload (one msgpack
record); all little-endian. The region after the last frame is zeros, so a length of zero is the end. Invariant: every
frame before the first bad one is whole; reading stops at a bad frame and reports why, and how many bytes it skips. A
segment may be read while it is being written.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec
from isal.isal_zlib import crc32

from weir.store.errors import SchemaTooNew
from weir.store.records.call_record import SCHEMA_VERSION, CallRecord, decode_record

MAGIC = b"WEIRLOG\x01"
HEADER = struct.Struct("<8sIQ8xI")  # magic, schema version, created (unix µs), spare, crc32 of what precedes
FRAME = struct.Struct("<II")  # length, crc32
OPEN_SUFFIX = ".wal"
SEALED_SUFFIX = ".sealed.wal"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContents:
    """The records of a segment, and what was not readable."""

    records: list[CallRecord]
    num_bytes: int = 0  # of the header and of whole frames
    bytes_dropped: int = 0
    frames_dropped: int = 0  # bad ones that were met; `salvage.frames_dropped` also counts whole ones behind them
    reason: str | None = None


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """One segment of one writer. Sealing changes the file's suffix, not the segment's name."""

    writer: str
    seq: int
    sealed: bool = field(compare=False)
    folder: Path = field(compare=False)

    @property
    def segment_id(self) -> str:
        """The name in the catalog."""
        return f"{self.writer}/{self.seq:08d}"

    @property
    def path(self) -> Path:
        """The file, under the name that it had when it was listed."""
        return self.folder / f"{self.seq:08d}{SEALED_SUFFIX if self.sealed else OPEN_SUFFIX}"

    @property
    def sealed_path(self) -> Path:
        """The file's name once it is sealed."""
        return self.folder / f"{self.seq:08d}{SEALED_SUFFIX}"

    def read(self) -> SegmentContents:
        """Read the segment, also where it was sealed since it was listed. Raises FileNotFoundError where it is gone."""
        try:
            return read_segment(self.path)
        except FileNotFoundError:
            if self.sealed:
                raise
            return read_segment(self.sealed_path)


def opened_segment(segment: Segment) -> BinaryIO:
    """Open the segment's file, also where it was sealed since. Raises FileNotFoundError where it is gone."""
    try:
        return open(segment.path, "rb", buffering=2**20)
    except FileNotFoundError:
        return open(segment.sealed_path, "rb", buffering=2**20)


def list_segments(log_dir: Path) -> list[Segment]:
    """Every segment under a log folder, once, by writer and sequence number."""
    found: dict[tuple[str, int], Segment] = {}
    for folder in sorted(log_dir.iterdir()) if log_dir.is_dir() else []:
        if not folder.is_dir():
            continue
        for path in folder.glob(f"*{OPEN_SUFFIX}"):
            stem = path.name.split(".", 1)[0]
            sealed = path.name.endswith(SEALED_SUFFIX)
            key = (folder.name, int(stem))
            if sealed or key not in found:
                found[key] = Segment(folder.name, int(stem), sealed, folder)
    return sorted(found.values())


def header_bytes(created_us: int, schema: int = SCHEMA_VERSION) -> bytes:
    """The header of a new segment."""
    unsigned = HEADER.pack(MAGIC, schema, created_us, 0)[:-4]
    return unsigned + struct.pack("<I", crc32(unsigned))


def segment_schema(head: bytes) -> int:
    """The schema version in a segment's header; this Weir's where there is no header yet."""
    return int(HEADER.unpack(head)[1]) if len(head) == HEADER.size else SCHEMA_VERSION


def frame_head(payload: bytes) -> bytes:
    """The bytes of a frame before its payload."""
    length = struct.pack("<I", len(payload))
    return length + struct.pack("<I", crc32(payload, crc32(length)))


def read_segment(path: Path) -> SegmentContents:
    """Read all whole records. Raises SchemaTooNew, and FileNotFoundError where the file does not exist."""
    with open(path, "rb", buffering=2**20) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEADER.size)
        problem = _header_problem(path, head)
        if problem is not None:
            return SegmentContents(records=[], bytes_dropped=_nonzero_bytes(file, 0), frames_dropped=1, reason=problem)
        return _read_frames(path, file, size, segment_schema(head))


def _header_problem(path: Path, head: bytes) -> str | None:
    if not head.strip(b"\0"):
        return None if len(head) == 0 else "the writer died before it wrote the header"
    if len(head) < HEADER.size:
        return f"the header has {len(head)} bytes instead of {HEADER.size}"
    magic, schema, _, crc = HEADER.unpack(head)
    if magic != MAGIC:
        return f"this is not a log segment: it begins with {magic!r}"
    if crc32(head[:-4]) != crc:
        return "the header does not match its checksum"
    _refuse_newer(path, schema)
    return None


def _refuse_newer(path: Path, schema: int) -> None:
    if schema > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"cannot read {path}: it has schema version {schema}, this Weir knows up to {SCHEMA_VERSION}; "
            "install the version of Weir that wrote it, or a later one"
        )


def _read_frames(path: Path, file: BinaryIO, size: int, schema: int) -> SegmentContents:
    records: list[CallRecord] = []
    offset, undecodable, frames, reason = HEADER.size, 0, 0, None
    while True:
        head = file.read(FRAME.size)
        if not head.strip(b"\0"):
            return SegmentContents(
                records=records, num_bytes=offset, bytes_dropped=undecodable, frames_dropped=frames, reason=reason
            )
        payload, problem = _read_payload(file, head, offset, size)
        if problem is not None:
            dropped = undecodable + _nonzero_bytes(file, offset)
            return SegmentContents(
                records=records, num_bytes=offset, bytes_dropped=dropped, frames_dropped=frames + 1, reason=problem
            )
        try:
            record = decode_record(payload)
        except msgspec.MsgspecError as error:  # an intact frame that is no record: the next one may be
            undecodable += FRAME.size + len(payload)
            frames += 1
            reason = f"the frame at byte {offset} is not a call record: {error}"
        else:
            _refuse_newer(path, record.schema)
            # Records leave out the schema version of their segment.
            records.append(record if schema == SCHEMA_VERSION else msgspec.structs.replace(record, schema=schema))
        offset += FRAME.size + len(payload)


def _read_payload(file: BinaryIO, head: bytes, offset: int, size: int) -> tuple[bytes, str | None]:
    if len(head) < FRAME.size:
        return b"", f"the file ends inside the frame at byte {offset}"
    length, crc = FRAME.unpack(head)
    if length > size - offset - FRAME.size:
        return b"", f"the frame at byte {offset} claims {length} bytes and the file ends before them"
    payload = file.read(length)
    if crc32(payload, crc32(head[:4])) != crc:
        return b"", f"the frame at byte {offset} does not match its checksum"
    return payload, None


def _nonzero_bytes(file: BinaryIO, offset: int) -> int:
    """The number of bytes from `offset` to the last one that is not zero."""
    file.seek(offset)
    return len(file.read().rstrip(b"\0"))


def created_us(segment: Segment) -> int | None:
    """When a segment was begun (unix microseconds), by its header; None where that is unreadable."""
    try:
        with opened_segment(segment) as file:
            head = file.read(HEADER.size)
    except FileNotFoundError:
        return None
    if len(head) < HEADER.size or crc32(head[:-4]) != HEADER.unpack(head)[3]:
        return None
    return int(HEADER.unpack(head)[2])
