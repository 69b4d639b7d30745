"""Missing segments: those that a writer on this machine began, and that are neither in its folder nor in any file.

Invariant: a writer's lock file has the last number that it used, and each number names one segment; the catalog
remembers segments that were compacted and deleted. A number without a segment may be one that the disk refused before
it held a call, so a missing segment alone says nothing about a group. Writers whose whole folder is gone are not found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.log.segment_format import Segment, created_us, list_segments
from weir.store.log.segment_writer import LOCK
from weir.store.log.writer import writer_is_alive


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingSegment:
    """A number of a writer that has no segment."""

    path: Path  # where it would be
    before_us: int | None  # when a later segment existed, so that this one was sealed; None: it is the last


def missing_segments_of(config: StoreConfig, catalog: Catalog) -> list[MissingSegment]:
    """The missing segments of all writers whose folders are on this machine."""
    used = dict(_used_numbers(config))
    here = list_segments(config.log_dir)
    times = {(segment.writer, segment.seq): created_us(segment) for segment in here}
    with catalog.reading().begin() as connection:
        for row in connection.execute(sa.select(t.segments.c.segment_id, t.segments.c.compacted_us)):
            writer, _, seq = row.segment_id.rpartition("/")
            times.setdefault((writer, int(seq)), row.compacted_us)
    return [gone for writer, last in used.items() for gone in _of_writer(config, writer, last, times)]


def _of_writer(
    config: StoreConfig, writer: str, last: int, times: Mapping[tuple[str, int], int | None]
) -> Iterator[MissingSegment]:
    before_us: int | None = None
    for seq in range(last, 0, -1):
        if (writer, seq) not in times:
            folder = config.log_dir / writer
            yield MissingSegment(path=Segment(writer, seq, True, folder).path, before_us=before_us)
        elif (at_us := times[writer, seq]) is not None:
            before_us = at_us if before_us is None else min(before_us, at_us)


def _used_numbers(config: StoreConfig) -> Iterator[tuple[str, int]]:
    """The last number of each writer that certainly had a segment: a live writer may be about to create its last."""
    for lock in sorted(config.log_dir.glob(f"*/{LOCK}")):
        with contextlib.suppress(ValueError):  # a lock without a number; its writer cannot start either
            last = int(lock.read_bytes() or 0)
            yield lock.parent.name, last - writer_is_alive(lock.parent)
