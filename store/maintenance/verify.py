"""`weir store verify`: whether a store is sound, one line per finding; and its repair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.disk import SYSTEM_DISK, Disk
from weir.store.maintenance.compact import compact, only_compactor
from weir.store.maintenance.repair import Repair, repair
from weir.store.maintenance.survey import FileDamage, Survey, survey
from weir.store.shared.local_copies import all_copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The findings as lines, and the repair where one was requested."""

    is_sound: bool
    calls: int
    findings: list[str]
    repair: Repair | None = None


def verify(config: StoreConfig, disk: Disk = SYSTEM_DISK, fix: bool = False) -> Verdict:
    """Read the whole store; `fix` also repairs the damage, which one process at a time may do.

    Raises CompactionRunning, SchemaTooNew and StoreUnavailable.
    """
    catalog = Catalog.open(config)
    done = None
    try:
        if fix:
            with only_compactor(config, catalog):
                found = survey(catalog, config)
                done = None if found.is_sound else repair(catalog, config, disk, found)
        else:
            with all_copies(config):
                found = survey(catalog, config)
    finally:
        catalog.close()
    if done is not None:
        compact(config, disk=disk)
    return Verdict(is_sound=found.is_sound, calls=found.calls, findings=list(_words(found)), repair=done)


def _words(found: Survey) -> Iterator[str]:
    for segment, why in found.segments:
        yield f"segment {segment.segment_id}: {why}"
    for file in found.files:
        yield from _file_words(file)
    for path in found.unnamed:
        yield f"file {path.name}: the catalog does not name it"
    for key, why in (found.shared.restorable | found.shared.lost).items():
        remark = ", and a whole copy is on this machine" if key in found.shared.restorable else ""
        yield f"object {key}: {why}{remark}"
    for orphan in found.shared.orphans:
        yield f"object {orphan.key}: the catalog does not name it"
    for key in found.shared.foreign:
        yield f"object {key}: it is none of the store's, and is left alone"
    for jump in found.jumps:
        yield f"clock, {jump.where}: {jump.detail}"


def _file_words(damage: FileDamage) -> Iterator[str]:
    name = damage.file.path
    if damage.is_missing:
        yield f"file {name}: it is gone, with {damage.file.num_calls} calls; the catalog names it"
    for why in damage.unreadable:
        yield f"file {name}: {why}"
    for call_id, why in damage.broken.items():
        yield f"file {name}: call {call_id}: {why}"
