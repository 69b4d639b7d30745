"""Periodic maintenance of a store: compaction, retention, garbage collection.

Invariant: a failure does not end the loop; it is reported, and the next turn retries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.disk import SYSTEM_DISK, Disk
from weir.store.errors import CompactionRunning, StoreError
from weir.store.maintenance.compact import CompactReport, compact, only_compactor
from weir.store.maintenance.garbage import Garbage, delete_leftovers, delete_unneeded, found_garbage
from weir.store.maintenance.retention import Retirement, planned_retirement, retire_groups
from weir.store.maintenance.shared_repair import delete_orphans
from weir.store.spill import delete_abandoned_spills


def collect_garbage(config: StoreConfig, disk: Disk = SYSTEM_DISK) -> tuple[Retirement, Garbage]:
    """Apply retention, then delete what no reader needs and the leftovers of crashes.

    Raises CompactionRunning, StoreCorrupt and StoreUnavailable.
    """
    catalog = Catalog.open(config)
    try:
        with only_compactor(config, catalog):
            retirement = retire_groups(catalog, config, disk)
            unneeded = delete_unneeded(catalog, config, disk)
            leftovers, num_bytes = delete_leftovers(catalog, config, disk)
            delete_abandoned_spills(config)
            orphans, orphan_bytes = delete_orphans(catalog, config)
    finally:
        catalog.close()
    return retirement, replace(unneeded, leftovers=leftovers + orphans, bytes=unneeded.bytes + num_bytes + orphan_bytes)


def planned_garbage(config: StoreConfig) -> tuple[Retirement, Garbage]:
    """What `collect_garbage` would do now. Changes nothing."""
    catalog = Catalog.open(config)
    try:
        return planned_retirement(catalog, config), found_garbage(catalog, config)
    finally:
        catalog.close()


def keep_up(
    config: StoreConfig,
    every_s: float,
    stop_asked: Callable[[float], bool],
    done: Callable[[CompactReport], None],
    failed: Callable[[StoreError], None],
) -> None:
    """Compact at intervals until `stop_asked`, which waits so many seconds at most, says so.

    Another compacting process is not a failure: it does the same work.
    """
    while not stop_asked(0):
        try:
            done(compact(config))
        except CompactionRunning:
            pass
        except StoreError as error:
            failed(error)
        stop_asked(every_s)
