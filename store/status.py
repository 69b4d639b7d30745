"""The contents of a store in numbers, for `weir store status`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import file_set
from weir.store.catalog.pins import Pin, pins
from weir.store.catalog.proxies import is_live, proxies
from weir.store.catalog.rows import ProxyRow
from weir.store.catalog.shared_segments import LogWriterRow, log_writers
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.log.salvage import frames_dropped
from weir.store.log.segment_format import Segment, created_us, list_segments
from weir.store.log.writer import writer_is_alive
from weir.store.shared.files import fetch_log


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """Counts at one moment. A torn end of a segment that a live process writes is not damage."""

    catalog: str
    stored_calls: int
    hot_calls: int
    files: int
    file_bytes: int
    open_segments: int
    sealed_segments: int
    log_bytes: int
    compacted_segments: int
    bytes_dropped: int
    frames_dropped: int  # unreadable frames, and whole ones behind them that reading skips
    behind_s: float | None  # how long the oldest sealed segment has waited for compaction; None: none waits
    proxies: list[ProxyRow]  # live ones
    damaged: list[tuple[str, str]]  # segment, and why it was not read to its end
    sessions: int
    groups: int
    rounds: int
    pins: list[Pin]  # of consumers that have not acknowledged what they read
    unshared: list[LogWriterRow]  # logs with calls that other machines may not be able to read yet

    @property
    def calls(self) -> int:
        """All calls."""
        return self.stored_calls + self.hot_calls


def store_status(config: StoreConfig) -> StoreStatus:
    """Count everything; reads every segment of the log. Raises SchemaTooNew and StoreUnavailable."""
    catalog = Catalog.open(config)
    try:
        fetch_log(config, catalog)
        segments = list_segments(config.log_dir)
        unshared = log_writers(catalog)
        pinned = pins(catalog)
        serving = [row for row in proxies(catalog) if is_live(row)]
        with catalog.reading().begin() as connection:
            fileset = file_set(connection)
            counts = {
                table.name: connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
                for table in (t.sessions, t.groups, t.rounds)
            }
            damaged = [
                (row.segment_id, row.reason, row.bytes_dropped, row.frames_dropped or 0)
                for row in connection.execute(sa.select(t.segments).where(t.segments.c.reason.is_not(None)))
            ]
    finally:
        catalog.close()
    hot_calls, log_bytes = 0, 0
    waiting = [segment for segment in segments if segment.segment_id not in fileset.compacted]
    for segment in waiting:
        contents = segment.read()
        hot_calls += len(contents.records)
        log_bytes += contents.num_bytes
        if contents.reason is not None and (segment.sealed or not writer_is_alive(segment.folder)):
            frames = frames_dropped(segment, contents)
            damaged.append((segment.segment_id, contents.reason, contents.bytes_dropped, frames))
    return StoreStatus(
        catalog=sa.make_url(config.url).render_as_string(hide_password=True),
        stored_calls=sum(file.num_calls for file in fileset.files),
        hot_calls=hot_calls,
        files=len(fileset.files),
        file_bytes=sum(file.num_bytes for file in fileset.files),
        open_segments=sum(not segment.sealed for segment in waiting),
        sealed_segments=sum(segment.sealed for segment in waiting),
        log_bytes=log_bytes,
        compacted_segments=len(fileset.compacted),
        bytes_dropped=sum(num_bytes for _, _, num_bytes, _ in damaged),
        frames_dropped=sum(frames for _, _, _, frames in damaged),
        behind_s=_behind_s(waiting),
        proxies=serving,
        damaged=[(segment_id, reason) for segment_id, reason, _, _ in damaged],
        sessions=counts["sessions"],
        groups=counts["groups"],
        rounds=counts["rounds"],
        pins=pinned,
        unshared=unshared,
    )


def _behind_s(waiting: Sequence[Segment]) -> float | None:
    """Age of the oldest sealed segment in seconds, by the clock of the machine that began it."""
    begun = [at_us for segment in waiting if segment.sealed and (at_us := created_us(segment)) is not None]
    return max((now_us() - min(begun)) / 1e6, 0.0) if begun else None
