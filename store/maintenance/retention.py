"""Retention: groups that are old enough leave the store, with their calls and their rows in the catalog.

Invariants: a group leaves whole and in one transaction, so that no call loses the base of its prompt; a file of which
all groups leave is not rewritten. Files of a reader's snapshot are deleted only after it is closed, as every replaced
file. It can be killed at any point and run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from weir.store.catalog.age import advance_age
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import database_now_us
from weir.store.catalog.files import FileChange, Publication, Retired, file_set, files_with_groups, publish
from weir.store.catalog.retention import Due, due_groups, retired_groups
from weir.store.catalog.rows import FileRow
from weir.store.config import StoreConfig
from weir.store.disk import Disk
from weir.store.parquet.call_file import file_id_of, write_call_file
from weir.store.parquet.files import read_calls, read_row_groups
from weir.store.shared.files import fetch_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """What left the store, or would leave it now; `needed` counts the old groups that stay, by reason."""

    groups: int = 0
    calls: int = 0
    files: int = 0  # that left as a whole
    rewritten: int = 0
    needed: dict[str, int] = field(default_factory=dict)


def retire_groups(catalog: Catalog, config: StoreConfig, disk: Disk) -> Retirement:
    """Remove the groups that retention selects. The caller holds the compactor's lock.

    Raises CompactionRunning where another machine published or a round claimed meanwhile, StoreCorrupt for damage.
    """
    due = _due(catalog, config)
    if not due.groups:
        return Retirement(needed=due.needed)
    going = sorted(group.group_id for group in due.groups)
    with catalog.reading().begin() as connection:
        generation = file_set(connection).generation
        files = files_with_groups(connection, going)
    fetch_files(config, [file.path for file in files])
    change = Publication(retired=Retired(group_ids=going, config=config))
    for file in files:
        _take_out(config, disk, file, going, change)
    publish(catalog, change, generation)
    return Retirement(
        groups=len(going),
        calls=len(change.removed),
        files=sum(one.file is None for one in change.changes),
        rewritten=sum(one.file is not None for one in change.changes),
        needed=due.needed,
    )


def planned_retirement(catalog: Catalog, config: StoreConfig) -> Retirement:
    """What would leave the store now. Changes nothing."""
    due = _due(catalog, config)
    return Retirement(groups=len(due.groups), calls=sum(group.num_calls for group in due.groups), needed=due.needed)


def _due(catalog: Catalog, config: StoreConfig) -> Due:
    with catalog.writing().begin() as connection:
        now_us = database_now_us(connection)
        age_us = advance_age(connection, now_us)
    with catalog.reading().begin() as connection:
        return due_groups(connection, config, age_us, now_us)


def _take_out(config: StoreConfig, disk: Disk, file: FileRow, going: list[str], change: Publication) -> None:
    """Rewrite a file without the calls of some groups, where it has any; no file where nothing is left."""
    path = config.folder / file.path
    removed = read_calls([path], {"group_id": going}, ["call_id"])["call_id"].to_pylist()
    if not removed:
        return
    entering = FileChange(replaced=[file])
    if len(removed) < file.num_calls:
        file_id = file_id_of(["without", file.file_id, *going])
        written = write_call_file(config, disk, file_id, _staying(path, going), file.created_us)
        if written is not None:
            entering.file, entering.groups, entering.sessions = written
    change.changes.append(entering)
    change.removed.extend(removed)


def _staying(path: Path, going: list[str]) -> Iterator[pa.Table]:
    leaving = pa.array(going, pa.string())
    for table in read_row_groups(path):
        yield table.filter(pc.invert(pc.is_in(table["group_id"], leaving)))


def without_retired(catalog: Catalog, table: pa.Table) -> pa.Table:
    """Calls without those that retention removed. Needs the columns group_id and finished_us."""
    with catalog.reading().begin() as connection:
        retired = retired_groups(connection, table["group_id"].unique().to_pylist())
    rows = zip(table["group_id"].to_pylist(), table["finished_us"].to_pylist(), strict=True)
    stays = [finished_us > retired.get(group_id, -1) for group_id, finished_us in rows]
    return table.filter(pa.array(stays, pa.bool_()))
