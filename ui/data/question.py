"""A question in SQL: its answer for the screen, or as a file.

Invariant: what reaches Python of one value is bounded. For the screen, DuckDB cuts long values; for a file it writes
nested ones as JSON, and a batch is taken apart into pieces of `PIECE_BYTES`.
"""

from __future__ import annotations

import base64
import csv
import datetime
import io
import json
from collections.abc import Iterator
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from weir.store.query.left_out import leave_out
from weir.store.query.question import check_question
from weir.store.query.sql.macros import MACROS
from weir.store.query.sql.views import VIEWS
from weir.ui.data.rows import rows

SHOWN_ROWS = 1000
CELL_CHARACTERS = 2000
BATCH_ROWS = 2048
PIECE_BYTES = 4 * 2**20

_AS_IT_IS = frozenset(
    (
        *("boolean", "tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger"),
        *("ubigint", "uhugeint", "float", "double", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"),
    )
)
_NESTED = frozenset(("list", "array", "struct", "map", "union"))


def answer(cursor: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    """The first rows of an answer: columns, DuckDB's types, rows, whether there are more, and whether values are cut.

    Raises QueryRefused as `check_question` does.
    """
    asked = _relation(cursor, query)
    kinds = [kind.id for kind in asked.types]
    cells = [_cell(f"#{column}", kind) for column, kind in enumerate(kinds, 1)]
    is_cut = " OR ".join(f"coalesce({_is_long(f'#{column}', kind)}, false)" for column, kind in enumerate(kinds, 1))
    shown = asked.project(f"{', '.join(cells)}, {is_cut}").limit(SHOWN_ROWS + 1).fetchall()
    return {
        "columns": asked.columns,
        "types": [str(kind) for kind in asked.types],
        "rows": [[_scalar(value) for value in values] for *values, _ in shown[:SHOWN_ROWS]],
        "truncated": len(shown) > SHOWN_ROWS,
        "cut": any(row[-1] for row in shown[:SHOWN_ROWS]),
    }


def _relation(cursor: duckdb.DuckDBPyConnection, query: str) -> duckdb.DuckDBPyRelation:
    """The answer before it is computed. Raises QueryRefused."""
    check_question(cursor, query)
    leave_out(cursor, query, {})
    return cursor.sql(_statement(query))


def _statement(query: str) -> str:
    """The query without the semicolon and the comments behind it, as it may stand in brackets."""
    text = query.encode()
    end = len(text)
    for at, kind in reversed(duckdb.tokenize(query)):
        if text[at : at + 1] == b";":
            end = at
        elif kind is not duckdb.token_type.comment:
            break
    return text[:end].decode()


def _text(column: str, kind: str) -> str:
    """A column as text; of a long list, its first values."""
    if kind in ("list", "array"):
        # The values that are left are copied by list_concat: to_json would look through all.
        return f"to_json(list_concat({column}[1:{CELL_CHARACTERS}], []))::VARCHAR"
    if kind in _NESTED:
        return f"to_json({column})::VARCHAR"
    return f"base64({column})" if kind == "blob" else f"{column}::VARCHAR"


def _is_long(column: str, kind: str) -> str:
    if kind in _AS_IT_IS or kind == "decimal":
        return "false"
    is_long = f"length({_text(column, kind)}) > {CELL_CHARACTERS}"
    return f"(len({column}) > {CELL_CHARACTERS} OR {is_long})" if kind in ("list", "array") else is_long


def _cell(column: str, kind: str) -> str:
    """What is shown of a column: a long value is cut, and says how long it is."""
    if kind in _AS_IT_IS:
        return column
    if kind == "decimal":
        return f"{column}::DOUBLE"
    if kind == "timestamp with time zone":
        return f"{column}::TIMESTAMP"
    text = _text(column, kind)
    cut = f"left({text}, {CELL_CHARACTERS})"
    many = f"WHEN len({column}) > {CELL_CHARACTERS} THEN {cut} || format('… ({{:,}} values)', len({column}))"
    long = f"WHEN length({text}) > {CELL_CHARACTERS} THEN {cut} || format('… ({{:,}} characters)', length({text}))"
    return f"CASE {many if kind in ('list', 'array') else ''} {long} ELSE {text} END"


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
    """The whole answer as CSV, piece by piece; lists and structures as JSON."""
    asked = _relation(cursor, query)
    head = _csv_lines([asked.columns])  # sent with the first piece: nothing is sent of a question that fails at once
    for piece in _pieces(asked):
        yield head + _csv_lines([[_scalar(value) for value in row] for row in piece])
        head = b""
    if head:
        yield head


def as_json_lines(cursor: duckdb.DuckDBPyConnection, query: str) -> Iterator[bytes]:
    """The whole answer as JSON Lines, one object a row, piece by piece."""
    asked = _relation(cursor, query)
    is_nested = [kind.id in _NESTED for kind in asked.types]
    for piece in _pieces(asked):
        named = (
            {
                name: _json(value) if nested else value
                for name, value, nested in zip(asked.columns, row, is_nested, strict=True)
            }
            for row in piece
        )
        yield b"".join(msgspec.json.encode(row, enc_hook=str) + b"\n" for row in named)


def _pieces(asked: duckdb.DuckDBPyRelation) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of an answer, of at most about `PIECE_BYTES` at once, with nested values as texts in JSON."""
    columns = (
        f"to_json(#{column})::VARCHAR" if kind.id in _NESTED else f"#{column}"
        for column, kind in enumerate(asked.types, 1)
    )
    for batch in asked.project(", ".join(columns)).to_arrow_reader(BATCH_ROWS):
        num_rows = max(1, batch.num_rows * PIECE_BYTES // max(batch.nbytes, 1))
        for first in range(0, batch.num_rows, num_rows):
            columns_of_piece = batch.slice(first, num_rows).columns
            yield list(zip(*(column.to_pylist() for column in columns_of_piece), strict=True))


def as_parquet(cursor: duckdb.DuckDBPyConnection, query: str) -> Iterator[bytes]:
    """The whole answer as Parquet, row group by row group."""
    reader = _relation(cursor, query).to_arrow_reader(BATCH_ROWS)
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
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _json(text: str | None) -> msgspec.Raw | None:
    """A nested value of a line: DuckDB writes numbers that JSON has not as they are, which become null."""
    if text is None:
        return None
    if "NaN" in text or "Infinity" in text:
        text = msgspec.json.encode(json.loads(text)).decode()
    return msgspec.Raw(text.encode())
