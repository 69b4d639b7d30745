"""Writes one Parquet file of calls and describes it for the catalog.

Invariant: the file appears whole or not at all, and no reader knows it until the catalog names it. Its id is derived
from its sources, so that a file that was never named is overwritten when the work is repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from weir.store.catalog.rows import FileGroup, FileRow, FileSession
from weir.store.config import StoreConfig
from weir.store.disk import Disk, whole_file
from weir.store.parquet.file_bounds import FileBounds
from weir.store.parquet.files import CallFileWriter, sessions_of
from weir.store.records.call_record import SCHEMA_VERSION
from weir.store.shared.files import share_file

SUFFIX = ".parquet"


def file_id_of(made_of: Sequence[str]) -> str:
    """The id of a file with these segments, or files, as its sources."""
    return xxh3_128_hexdigest("\n".join(made_of).encode())


def write_call_file(
    config: StoreConfig, disk: Disk, file_id: str, tables: Iterable[pa.Table], created_us: int
) -> tuple[FileRow, list[FileGroup], list[FileSession]] | None:
    """Write tables ordered by group, which one group may span; None, and no file, where there is no call."""
    filled = (table for table in tables if table.num_rows)
    first = next(filled, None)
    if first is None:
        return None
    groups: dict[str, FileGroup] = {}
    sessions: set[FileSession] = set()
    bounds = FileBounds()
    disk.make_folder(config.data_dir)
    path = config.data_dir / f"{file_id}{SUFFIX}"
    with whole_file(disk, path) as file, CallFileWriter(file) as writer:
        for table in itertools.chain([first], filled):
            _add(groups, groups_of(table))
            sessions.update(sessions_of(table))
            bounds.add(table)
            writer.write(table)
        num_bytes = writer.finish()
    row = FileRow(
        file_id=file_id,
        path=str(share_file(config, path).relative_to(config.folder)),
        schema_version=SCHEMA_VERSION,
        num_calls=sum(group.num_calls for group in groups.values()),
        num_bytes=num_bytes,
        created_us=created_us,
        first_us=bounds.first_us,
        last_us=bounds.last_us,
        version_low=bounds.version_low,
        version_high=bounds.version_high,
    )
    return row, list(groups.values()), list(sessions)


def _add(groups: dict[str, FileGroup], more: Iterable[FileGroup]) -> None:
    for group in more:
        before = groups.get(group.group_id)
        groups[group.group_id] = group if before is None else _both(before, group)


def _both(one: FileGroup, other: FileGroup) -> FileGroup:
    return FileGroup(
        group_id=one.group_id,
        num_calls=one.num_calls + other.num_calls,
        last_us=max(one.last_us, other.last_us),
    )


def groups_of(table: pa.Table) -> Iterator[FileGroup]:
    """The groups of a table's calls."""
    counted = table.group_by("group_id").aggregate([("call_id", "count"), ("finished_us", "max")])
    for row in counted.to_pylist():
        yield FileGroup(group_id=row["group_id"], num_calls=row["call_id_count"], last_us=row["finished_us_max"])
