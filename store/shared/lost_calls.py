"""Brings lost calls from this machine's logs to the catalog, where all machines see them.

A call is lost where its writer's slots say that it is upstream and the process has ended, or that the log refused its
record. Invariants: a call whose record is in the log is not lost, also where its process was killed before it cleared
the slot; collecting again changes nothing, and a collector may be killed at any point. The slots of a dead writer are
deleted once the catalog has their calls.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.lost_calls import LOG_REFUSED, PROCESS_ENDED, LostCall, note_lost_calls, recorded_ends
from weir.store.config import StoreConfig
from weir.store.disk import SYSTEM_DISK, Disk
from weir.store.log.intents import FILE, Intent, State, read_intents
from weir.store.log.segment_format import list_segments
from weir.store.log.segment_writer import LOCK
from weir.store.log.writer import lock_file

_REASONS = {State.UPSTREAM: PROCESS_ENDED, State.UNRECORDED: LOG_REFUSED}


def collect_lost_calls(config: StoreConfig, catalog: Catalog, disk: Disk = SYSTEM_DISK) -> int:
    """Note the lost calls of every writer on this machine; returns how many it has now. Raises StoreUnavailable."""
    count = 0
    for path in sorted(config.log_dir.glob(f"*/{FILE}")):
        try:
            lock = lock_file(path.parent / LOCK)
        except BlockingIOError:  # its process lives, and its calls are on their way
            refused = [one for one in read_intents(path.parent) if one.state is State.UNRECORDED]
            count += _note(catalog, path.parent, refused)
            continue
        except PermissionError:  # of another user, who collects them
            continue
        try:
            count += _note(catalog, path.parent, _without_recorded(config, catalog, path.parent))
            with contextlib.suppress(OSError):  # noted again by the next collector
                disk.unlink(path)
        finally:
            os.close(lock)
    return count


def _without_recorded(config: StoreConfig, catalog: Catalog, folder: Path) -> Sequence[Intent]:
    intents = read_intents(folder)
    if not intents:
        return []
    recorded = recorded_ends(catalog, [one.call_id for one in intents])
    for segment in list_segments(config.log_dir):
        if segment.writer == folder.name:
            with contextlib.suppress(FileNotFoundError):  # compacted and deleted since it was listed
                recorded.update(record.call_id for record in segment.read().records)
    return [one for one in intents if one.call_id not in recorded]


def _note(catalog: Catalog, folder: Path, intents: Sequence[Intent]) -> int:
    lost = [
        LostCall(
            call_id=one.call_id,
            session_id=one.session_id,
            group_id=one.group_id,
            started_us=one.started_us,
            writer=folder.name,
            reason=_REASONS[one.state],
        )
        for one in intents
    ]
    if lost:
        note_lost_calls(catalog, lost)
    return len(lost)
