"""Shares a machine's log: sealed segments are put into object storage and entered in the catalog.

Invariants: `LogSharing` belongs to one log writer, whose row in the catalog has the time up to which its calls are
shared. A segment that did not exist at the last scan holds only calls acknowledged since, so the row gets the time of
the last scan before the oldest unshared segment. Scans are timed by a monotonic clock and reported in the catalog's
current time: a clock that went back must not let the row run ahead. Segments of dead writers on this machine are sealed
and shared by whichever process scans first. A failure is logged and retried at the next scan; meanwhile the row does
not advance, and no round takes groups with calls that other machines cannot see.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.shared_segments import (
    add_shared_segment,
    catalog_time_us,
    forget_log_writer,
    log_writers,
    set_shared_until,
    unshared,
)
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.disk import SYSTEM_DISK
from weir.store.errors import StoreError
from weir.store.log.segment_format import Segment, list_segments
from weir.store.log.segment_writer import LOCK
from weir.store.log.writer import seal_left_open, writer_is_alive
from weir.store.shared.files import delete_old_log, segment_key
from weir.store.shared.object_store import Objects, objects_of

LOOK_S = 2.0

logger = logging.getLogger("weir.store.shared.log")


class LogSharing:
    """The thread that shares the log of one writer. Raises StoreUnavailable where the catalog refuses its row."""

    def __init__(self, config: StoreConfig, catalog: Catalog, writer: str) -> None:
        self._config = config
        self._catalog = catalog
        self._writer = writer
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._bounds: dict[str, float] = {}  # own unshared segment → last scan before it existed
        objects = objects_of(config)
        if objects is None:
            return
        self._objects = objects
        self._looked_at = time.monotonic()
        set_shared_until(catalog, writer, catalog_time_us(catalog))
        self._thread = threading.Thread(target=self._run, name=f"weir-sharing-{writer}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Share the rest, after the log was closed. May be called twice."""
        if self._thread is None:
            return
        self._closed.set()
        self._thread.join()
        self._thread = None
        self._try_to_look()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            self._try_to_look()

    def _try_to_look(self) -> None:
        try:
            self._look()
            share_left_behind(self._config, self._catalog)
            delete_old_log(self._config, self._catalog, now_us() - int(self._config.segment_grace_s * 1e6))
        except (StoreError, OSError) as error:
            logger.warning("the log of %s is not shared and will be retried: %s", self._writer, error)

    def _look(self) -> None:
        """Share newly sealed segments, and report how far the log is shared."""
        looks_at = time.monotonic()
        mine = [segment for segment in list_segments(self._config.log_dir) if segment.writer == self._writer]
        for segment in mine:
            self._bounds.setdefault(segment.segment_id, self._looked_at)
        left = _share(self._objects, self._catalog, mine)
        self._bounds = {segment_id: bound for segment_id, bound in self._bounds.items() if segment_id in left}
        self._looked_at = looks_at
        shared_at = min(self._bounds.values(), default=looks_at)
        at_us = catalog_time_us(self._catalog)  # read first: the row may lag behind, never run ahead
        set_shared_until(self._catalog, self._writer, at_us - int((time.monotonic() - shared_at) * 1e6) - 1)


def share_left_behind(config: StoreConfig, catalog: Catalog) -> None:
    """Seal and share segments of this machine's dead writers; a writer without further segments loses its row."""
    objects = objects_of(config)
    if objects is None:
        return
    seal_left_open(config.log_dir, SYSTEM_DISK)
    segments = list_segments(config.log_dir)
    for row in log_writers(catalog):
        folder = config.log_dir / row.writer
        if (folder / LOCK).exists() and not writer_is_alive(folder):  # segments fetched from others have no lock
            left = _share(objects, catalog, [segment for segment in segments if segment.writer == row.writer])
            if not left:
                forget_log_writer(catalog, row.writer)


def _share(objects: Objects, catalog: Catalog, segments: Sequence[Segment]) -> set[str]:
    """Put the sealed segments into object storage; returns the ids of segments that are not there now."""
    left = unshared(catalog, [segment.segment_id for segment in segments])
    for segment in segments:
        if segment.sealed and segment.segment_id in left:
            objects.put(segment_key(segment.segment_id), segment.path)
            add_shared_segment(catalog, segment.segment_id, segment.path.stat().st_size)
            left.discard(segment.segment_id)
    return left
