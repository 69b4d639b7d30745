"""Reads every byte of a store and reports damage by kind and place.

Invariant: a survey changes nothing except copies of shared files, which it fetches. It reads all segments and files
once, a group at a time, so that a store of any size fits in memory. A call is sound where its prompt can be rebuilt and
matches its hash.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import file_set
from weir.store.catalog.rows import FileRow
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.log.segment_format import Segment, list_segments
from weir.store.log.writer import writer_is_alive
from weir.store.maintenance.clocks import ClockJump, call_jumps, writer_jumps
from weir.store.maintenance.garbage import unnamed_files
from weir.store.maintenance.shared_survey import SharedSurvey, old_orphans, survey_objects
from weir.store.parquet.call_file import SUFFIX
from weir.store.parquet.files import ReadableRowGroups
from weir.store.parquet.prompts import broken_calls
from weir.store.shared.object_store import objects_of


@dataclass(slots=True, kw_only=True)
class FileDamage:
    """What is wrong with one file that the catalog names."""

    file: FileRow
    is_missing: bool = False
    unreadable: list[str] = field(default_factory=list)  # parts of it, and why
    broken: dict[str, str] = field(default_factory=dict)  # calls, and why


@dataclass(slots=True, kw_only=True)
class Survey:
    """Everything wrong with a store; empty where it is sound."""

    segments: list[tuple[Segment, str]] = field(default_factory=list)  # and why it was not read to its end
    files: list[FileDamage] = field(default_factory=list)
    unnamed: list[Path] = field(default_factory=list)  # Parquet files that the catalog does not know
    jumps: list[ClockJump] = field(default_factory=list)
    shared: SharedSurvey = field(default_factory=SharedSurvey)  # of objects; empty where the root is a folder
    calls: int = 0  # read in files and segments

    @property
    def is_sound(self) -> bool:
        """Whether nothing needs repair. Clocks that jumped and foreign objects are not damage."""
        return not (self.segments or self.files or self.unnamed or self.shared.needs_repair)


def survey(catalog: Catalog, config: StoreConfig) -> Survey:
    """Read everything, while all copies are held. Raises SchemaTooNew and StoreUnavailable."""
    found = Survey()
    with catalog.reading().begin() as connection:
        known = file_set(connection)
    objects = objects_of(config)
    if objects is not None:
        found.shared = survey_objects(catalog, config, objects, known)
        found.shared.orphans = old_orphans(found.shared, config.orphan_grace_s)
    _survey_log(config, known.compacted, found)
    damage = {file.file_id: FileDamage(file=file) for file in known.files}
    _survey_files(config, damage, found)
    for one in damage.values():
        if (why := found.shared.damaged.get(one.file.path)) is not None:
            one.unreadable.append(why)
    found.files = [one for one in damage.values() if one.is_missing or one.unreadable or one.broken]
    if objects is None:  # with a shared root the objects count: an unnamed copy is not part of the store
        found.unnamed = [path for path in unnamed_files(catalog, config, known) if path.suffix == SUFFIX]
    return found


def _survey_log(config: StoreConfig, compacted: frozenset[str], found: Survey) -> None:
    segments = list_segments(config.log_dir)
    for segment in segments:
        try:
            contents = segment.read()
        except FileNotFoundError:  # deleted since
            continue
        if segment.segment_id not in compacted:
            found.calls += len(contents.records)
        if contents.reason is not None and (segment.sealed or not writer_is_alive(segment.folder)):
            found.segments.append((segment, f"{contents.reason}; {contents.bytes_dropped} bytes are not read"))
        times = [(record.call_id, record.started_us, record.finished_us) for record in contents.records]
        found.jumps.extend(call_jumps(segment.segment_id, times, now_us()))
    found.jumps.extend(writer_jumps(segments))


_Run = tuple[str, str, pa.Table]  # group, file, and some calls


def _survey_files(config: StoreConfig, damage: dict[str, FileDamage], found: Survey) -> None:
    runs = heapq.merge(*(_runs(config, one) for one in damage.values()), key=operator.itemgetter(0, 1))
    for _, members in itertools.groupby(runs, operator.itemgetter(0)):
        parts = [(file_id, table) for _, file_id, table in members]
        table = pa.concat_tables([part for _, part in parts])
        names = table["call_id"].to_pylist()
        found.calls += len(names)
        times = zip(names, table["started_us"].to_pylist(), table["finished_us"].to_pylist(), strict=True)
        found.jumps.extend(call_jumps(parts[0][0], list(times), now_us()))
        of_file = [file_id for file_id, part in parts for _ in range(part.num_rows)]
        for row, why in broken_calls(table, of_file).items():
            damage[of_file[row]].broken[names[row]] = why


def _runs(config: StoreConfig, damage: FileDamage) -> Iterator[_Run]:
    """A file's calls in order, split where the group changes; unreadable parts are noted."""
    path = config.folder / damage.file.path
    if not path.exists():
        damage.is_missing = True
        return
    readable = ReadableRowGroups(path)
    num_calls = 0
    for table in readable.tables():
        start, num_calls = 0, num_calls + table.num_rows
        for group_id, members in itertools.groupby(table["group_id"].to_pylist()):
            length = sum(1 for _ in members)
            yield group_id, damage.file.file_id, table.slice(start, length)
            start += length
    damage.unreadable.extend(readable.problems)
    if not readable.problems and num_calls != damage.file.num_calls:
        damage.unreadable.append(f"it has {num_calls} calls and the catalog says {damage.file.num_calls}")
