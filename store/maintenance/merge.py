"""Merges small Parquet files into larger ones, in tiers, so that a store that grows for weeks keeps few files.

Invariants: a merge changes no call and no place in the tree; the new file is complete before the catalog names it, and
the replaced ones leave in the same transaction; a damaged page is refused, never copied. Files of similar size are
merged eight at a time, oldest first, so that a call is rewritten once per tier.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import FileChange, Publication, file_set, publish
from weir.store.catalog.rows import FileRow
from weir.store.config import StoreConfig
from weir.store.disk import Disk
from weir.store.parquet.call_file import file_id_of, write_call_file
from weir.store.parquet.columns import PLACE_COLUMNS, SCHEMA
from weir.store.parquet.files import ROW_GROUP_CALLS, read_row_groups
from weir.store.records.tree import Link
from weir.store.shared.files import fetch_files

WIDTH = 8  # files merged into one
SMALLEST_BYTES = 2**20  # files below this size are one tier
FULL_BYTES = 64 * 2**20  # files of this size are not merged
SORTED_BYTES = 2**30  # sorted in memory
_ORDER = [(name, "ascending") for name in ("group_id", "session_id", "depth", "started_us", "call_id")]

_Run = tuple[str, pa.Table]  # a group, and some of its calls


def merge_files(catalog: Catalog, config: StoreConfig, disk: Disk) -> int:
    """Merge while any tier has enough files; returns the number of files replaced. The caller holds the lock.

    Raises CompactionRunning where another machine published meanwhile, StoreCorrupt for a damaged file.
    """
    merged = 0
    while True:
        with catalog.reading().begin() as connection:
            known = file_set(connection)
        chosen = files_to_merge(known.files)
        if not chosen:
            return merged
        fetch_files(config, [file.path for file in chosen])
        publish(catalog, _merge(config, disk, chosen, known.relinks), known.generation)
        merged += len(chosen)


def files_to_merge(files: Sequence[FileRow]) -> list[FileRow]:
    """The oldest files of the lowest tier that has enough of them, or none. `files` are oldest first."""
    tiers: dict[int, list[FileRow]] = {}
    for file in files:
        if file.num_bytes < FULL_BYTES:
            tiers.setdefault(_tier(file.num_bytes), []).append(file)
    return next((tier[:WIDTH] for _, tier in sorted(tiers.items()) if len(tier) >= WIDTH), [])


def _tier(num_bytes: int) -> int:
    tier, limit = 0, SMALLEST_BYTES
    while num_bytes >= limit:
        tier, limit = tier + 1, limit * WIDTH
    return tier


def _merge(config: StoreConfig, disk: Disk, chosen: Sequence[FileRow], moves: Mapping[str, Link]) -> Publication:
    entering = FileChange(replaced=chosen)
    change = Publication(changes=[entering])
    runs = heapq.merge(*(_runs(config, file) for file in chosen), key=operator.itemgetter(0))
    tables = map(_sorted, _settled(_chunks(runs), moves, change))
    file_id = file_id_of([file.file_id for file in chosen])
    written = write_call_file(config, disk, file_id, tables, max(file.created_us for file in chosen))
    if written is not None:
        entering.file, entering.groups, entering.sessions = written
    return change


def _runs(config: StoreConfig, file: FileRow) -> Iterator[_Run]:
    """A file's calls in order, split where the group changes."""
    for table in read_row_groups(config.folder / file.path):
        start = 0
        for group_id, members in itertools.groupby(table["group_id"].to_pylist()):
            length = sum(1 for _ in members)
            yield group_id, table.slice(start, length)
            start += length


def _chunks(runs: Iterator[_Run]) -> Iterator[pa.Table]:
    """Whole groups, joined until they fill a row group."""
    waiting: list[pa.Table] = []
    for _, members in itertools.groupby(runs, operator.itemgetter(0)):
        waiting.extend(table for _, table in members)
        if sum(table.num_rows for table in waiting) >= ROW_GROUP_CALLS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _sorted(table: pa.Table) -> pa.Table:
    """Calls in the order of compaction. A huge group keeps the order of its files, which costs compression only."""
    return table if table.nbytes > SORTED_BYTES else table.take(pc.sort_indices(table, _ORDER))


def _settled(tables: Iterator[pa.Table], moves: Mapping[str, Link], change: Publication) -> Iterator[pa.Table]:
    """The tables with their calls' current places in the tree, so that `relinks` no longer needs them."""
    for table in tables:
        ids = table["call_id"].to_pylist()
        moved = [call_id for call_id in ids if call_id in moves]
        change.settled.extend(moved)
        yield _with_places(table, ids, moves) if moved else table


def _with_places(table: pa.Table, ids: Sequence[str], moves: Mapping[str, Link]) -> pa.Table:
    for name in PLACE_COLUMNS:
        old = table[name].to_pylist()
        new = [getattr(moves[i], name) if i in moves else was for i, was in zip(ids, old, strict=True)]
        field = SCHEMA.field(name)
        table = table.set_column(SCHEMA.get_field_index(name), field, pa.array(new, field.type))
    return table
