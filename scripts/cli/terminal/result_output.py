"""Prints the answer of a query as a table for people, or as JSON, CSV or Parquet for programs."""

from __future__ import annotations

import csv
import datetime
import decimal
import itertools
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    import pyarrow as pa

    from weir.store.query.question import Answer

CELL_CHARACTERS = 80
FILE_WIDTH = 1000  # width of tables in files
FORMS = ("table", "json", "csv")
LIST_ITEMS = 8  # items of a list in a table; other formats have all
TABLE_ROWS = 1000  # rows of a table; other formats have all


def print_answer(answer: Answer, form: str, file: TextIO) -> None:
    """Print as "table", "json" (an array of objects) or "csv" (with a header)."""
    if form == "json":
        _print_json(answer, file)
    elif form == "csv":
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(["" if value is None else _cell(value) for value in row] for row in answer.rows)
    else:
        _print_table(answer, file)


def write_parquet(batches: pa.RecordBatchReader, path: Path) -> int:
    """Write an answer as it is computed; returns the number of rows. Raises OutputRefused."""
    import pyarrow.parquet as pq

    from weir.store.transfer.output_file import output_file

    rows = 0
    with output_file(path) as aside, pq.ParquetWriter(aside, batches.schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _print_json(answer: Answer, file: TextIO) -> None:
    written = [json.loads if kind == "JSON" else None for kind in answer.types]
    before = "[\n"
    for row in answer.rows:
        values = (read(value) if read and value else value for read, value in zip(written, row, strict=True))
        shown = dict(zip(answer.columns, map(_finite, values), strict=True))
        file.write(before + json.dumps(shown, default=_plain, ensure_ascii=False))
        before = ",\n"
    file.write("[]\n" if before == "[\n" else "\n]\n")


def _print_table(answer: Answer, file: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    rows = list(itertools.islice(answer.rows, TABLE_ROWS))
    left_out = sum(1 for _ in answer.rows)
    console = Console(soft_wrap=False, file=file)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(answer.columns):
        numbers = all(isinstance(row[i], int | float | None) and not isinstance(row[i], bool) for row in rows)
        table.add_column(name, justify="right" if numbers and rows else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_short(value) for value in row))
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH, file=file)
    console.print(table)
    shown = f", of which {TABLE_ROWS:,} are shown; --format csv gives all" if left_out else ""
    total = len(rows) + left_out
    typer.echo(f"{total:,} row{'' if total == 1 else 's'}{shown}", err=True)


def _short(value: Any) -> str:
    from rich.markup import escape

    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and len(value) > LIST_ITEMS:
        return escape(f"[{', '.join(str(item) for item in value[:LIST_ITEMS])}, … {len(value):,} in all]")
    text = printable(" ".join(str(_cell(value)).split()))
    return escape(text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…")


def printable(text: str) -> str:
    """Text without control characters, which a terminal would obey: models write escape sequences too."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _finite(value: Any) -> Any:
    """The value with NaN and infinities as None, which JSON lacks."""
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Any) -> Any:
    """A value as one text: lists and structures as JSON, times in ISO form."""
    if isinstance(value, list | dict):
        return json.dumps(_finite(value), default=_plain, ensure_ascii=False)
    return _plain(value) if isinstance(value, datetime.date | datetime.timedelta | bytes) else value


def _plain(value: Any) -> Any:
    """A value that JSON has no form for, as text or number."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
