"""A question in SQL: its answer for the screen, or as a file."""

from __future__ import annotations

import csv
import datetime
import io
import itertools
from collections.abc import Iterator
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from weir.store.query.question import answer_batches, answer_rows
from weir.store.query.sql.macros import MACROS
from weir.store.query.sql.views import VIEWS
from weir.ui.data.rows import rows

SHOWN_ROWS = 1000
CELL_CHARACTERS = 2000


def answer(cursor: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    """The first rows of an answer: columns, DuckDB's types, rows, and whether there are more.

    Raises QueryRefused as `answer_rows` does.
    """
    found = answer_rows(cursor, query, {})
    shown = list(itertools.islice(found.rows, SHOWN_ROWS + 1))
    return {
        "columns": found.columns,
        "types": found.types,
        "rows": [[_cell(value) for value in row] for row in shown[:SHOWN_ROWS]],
        "truncated": len(shown) > SHOWN_ROWS,
    }


def schema(cursor: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """The names that a question may use: views with their columns, and macros with their parameters."""
    columns: dict[str, list[str]] = {name: [] for name in ("session_rows", *VIEWS)}
    for row in rows(
        cursor,
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'main' "
        "ORDER BY table_name, ordinal_position",
    ):
        columns.setdefault(row["table_name"], []).append(row["column_name"])
    return {"views": columns, "macros": [" ".join(macro.split()).partition(" AS ")[0] for macro in MACROS]}


def as_csv(cursor: duckdb.DuckDBPyConnection, query: str) -> Iterator[bytes]:
    """The whole answer as CSV, batch by batch; lists and structures as JSON."""
    reader = answer_batches(cursor, query, {})
    head = _csv_lines([reader.schema.names])
    for batch in reader:  # the head goes with the first one, so that nothing is sent of a question that fails at once
        yield head + _csv_lines([[_scalar(value) for value in row.values()] for row in batch.to_pylist()])
        head = b""
    if head:
        yield head


def as_json_lines(cursor: duckdb.DuckDBPyConnection, query: str) -> Iterator[bytes]:
    """The whole answer as JSON Lines, one object a row, batch by batch."""
    for batch in answer_batches(cursor, query, {}):
        yield b"".join(msgspec.json.encode(row, enc_hook=str) + b"\n" for row in batch.to_pylist())


def as_parquet(cursor: duckdb.DuckDBPyConnection, query: str) -> Iterator[bytes]:
    """The whole answer as Parquet, row group by row group."""
    reader = answer_batches(cursor, query, {})
    sink = _Chunks()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            yield from sink.taken()
    yield from sink.taken()


class _Chunks(io.RawIOBase):
    """A file whose written bytes are taken away as they come."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._chunks.append(bytes(data))
        self._size += len(self._chunks[-1])
        return len(self._chunks[-1])

    def tell(self) -> int:
        return self._size

    def taken(self) -> list[bytes]:
        chunks, self._chunks = self._chunks, []
        return chunks


def _csv_lines(lines: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()


def _scalar(value: Any) -> Any:
    """A value as one cell holds it: a number, a truth value or a text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return msgspec.json.encode(value, enc_hook=str).decode()


def _cell(value: Any) -> Any:
    """A value for the screen: a long text is cut, and says how long it is."""
    shown = _scalar(value)
    if not isinstance(shown, str) or len(shown) <= CELL_CHARACTERS:
        return shown
    return f"{shown[:CELL_CHARACTERS]}… ({len(shown):,} characters)"
