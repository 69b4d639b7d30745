"""Writes and reads Parquet files of calls.

Invariant: statistics of the sort columns let a reader skip most row groups of groups that it does not want.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from weir.store.catalog.rows import FileSession
from weir.store.errors import StoreCorrupt
from weir.store.parquet.columns import SCHEMA, TOKEN_COLUMNS

ROW_GROUP_CALLS = 2048
SINK_BYTES = 8 * 2**20
_NUMBERS = {
    "prompt_suffix.list.element": "BYTE_STREAM_SPLIT",
    "output_ids.list.element": "BYTE_STREAM_SPLIT",
    "output_logprobs.list.element": "BYTE_STREAM_SPLIT",
}
_WORDS = [field.name for field in SCHEMA if pa.types.is_string(field.type)]
_WRITING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": [*_WORDS, "spans.list.element.label"],
    "column_encoding": _NUMBERS,
    "write_statistics": [field.name for field in SCHEMA if not pa.types.is_nested(field.type)],
    "write_page_checksum": True,
}


class CallFileWriter:
    """Writes tables of calls into one Parquet file in a thread, so that the next table is built meanwhile.

    Used as a context manager inside that of the file; its thread has ended when the block is left.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        # Larger writes call Python less often: each call waits until the other thread releases the GIL.
        self._sink = pa.BufferedOutputStream(pa.PythonFile(file, "w"), SINK_BYTES)
        self._writer = pq.ParquetWriter(self._sink, SCHEMA, **_WRITING)
        self._thread = ThreadPoolExecutor(1, "weir-parquet")
        self._last: Future[None] | None = None

    def __enter__(self) -> CallFileWriter:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown()
        if failed is not None:
            with contextlib.suppress(OSError, pa.ArrowException):  # the file is discarded: see whole_file
                self._writer.close()

    def write(self, table: pa.Table) -> None:
        """Queue a table; waits for the one before. Raises OSError where the disk refused that one."""
        self._wait()
        self._last = self._thread.submit(self._writer.write_table, table, ROW_GROUP_CALLS)

    def finish(self) -> int:
        """Write the rest; returns the file's size in bytes."""
        self._wait()
        self._writer.close()
        self._sink.flush()
        return self._file.tell()

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()


def read_groups(files: Sequence[Path], group_ids: Sequence[str], columns: Sequence[str] = TOKEN_COLUMNS) -> pa.Table:
    """The stored calls of some groups."""
    return read_calls(files, {"group_id": group_ids}, columns)


def read_calls(files: Sequence[Path], wanted: Mapping[str, Sequence[str]], columns: Sequence[str]) -> pa.Table:
    """The stored calls with one of the wanted values in each named column; statistics skip most of the file.

    Raises StoreCorrupt where a file cannot be read.
    """
    chosen = functools.reduce(operator.and_, (_one_of(column, names) for column, names in wanted.items()))
    return _read(files, columns, chosen)


def groups_of_sessions(files: Sequence[Path], session_ids: Sequence[str]) -> set[str]:
    """The groups of the stored calls of these sessions."""
    found = _read(files, ["group_id"], _one_of("session_id", session_ids))
    return set(found["group_id"].unique().to_pylist())


def sessions_in(file: Path) -> list[FileSession]:
    """The sessions of a file's calls. Raises StoreCorrupt where it cannot be read."""
    return sessions_of(_read([file], ["session_id", "group_id"], None))


def sessions_of(table: pa.Table) -> list[FileSession]:
    """The sessions of a table's calls, each once for every group of its calls."""
    distinct = table.group_by(["session_id", "group_id"]).aggregate([]).to_pylist()
    return [FileSession(session_id=row["session_id"], group_id=row["group_id"]) for row in distinct]


def _read(files: Sequence[Path], columns: Sequence[str], chosen: ds.Expression | None) -> pa.Table:
    try:
        return _dataset(files).to_table(columns=list(columns), filter=chosen)
    except (OSError, pa.ArrowException) as error:
        what = " ".join(str(error).split())
        raise StoreCorrupt(
            f"cannot read the store's files: {what}; weir store verify says which are damaged"
        ) from error


def _one_of(column: str, names: Sequence[str]) -> ds.Expression:
    return ds.field(column).isin(pa.array(names, pa.string()))


def _dataset(files: Sequence[Path]) -> ds.Dataset:
    if not files:
        return ds.dataset(SCHEMA.empty_table())
    return ds.dataset([str(path) for path in files], schema=SCHEMA, format="parquet")


def read_row_groups(path: Path) -> Iterator[pa.Table]:
    """All calls of a file, one row group at a time, with all columns of this schema version; page checksums are
    checked.

    Raises StoreCorrupt where the file cannot be read: missing, truncated, or with a damaged page.
    """
    readable = ReadableRowGroups(path)
    for table in readable.tables():
        if not readable.problems:
            yield table
    if readable.problems:
        raise StoreCorrupt(f"cannot read {path}: {readable.problems[0]}; weir store verify says what else is damaged")


class ReadableRowGroups:
    """The readable part of a file that may be damaged; `problems` lists the rest, once the tables were read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.problems: list[str] = []

    def tables(self) -> Iterator[pa.Table]:
        """The intact row groups, with all columns of this schema version."""
        try:
            file = pq.ParquetFile(self._path, page_checksum_verification=True)
        except (OSError, pa.ArrowException) as error:
            self.problems.append(" ".join(str(error).split()))
            return
        with file:
            for i in range(file.num_row_groups):
                try:
                    table = _of_today(file.read_row_group(i))
                except (OSError, pa.ArrowException) as error:
                    rows = file.metadata.row_group(i).num_rows
                    self.problems.append(f"{rows} calls in row group {i}: {' '.join(str(error).split())}")
                else:
                    yield table


def _of_today(table: pa.Table) -> pa.Table:
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.table(columns, schema=SCHEMA)
