"""The answer to a query as a table for people, or as JSON or CSV for programs."""

from __future__ import annotations

import csv
import datetime
import decimal
import json
import math
import sys
from dataclasses import dataclass
from typing import Any

import typer

CELL_CHARACTERS = 80
FILE_WIDTH = 1000  # of lines that no terminal has to show
LIST_ITEMS = 8  # of a list in a table; programs get all of them


@dataclass(frozen=True, slots=True)
class Answer:
    """Names and rows."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


def print_answer(answer: Answer, form: str) -> None:
    """Print as "table", "json" (an array of objects) or "csv" (with a header)."""
    if form == "json":
        objects = [dict(zip(answer.columns, map(_finite, row), strict=True)) for row in answer.rows]
        typer.echo(json.dumps(objects, default=_plain, ensure_ascii=False, indent=1))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([["" if value is None else _cell(value) for value in row] for row in answer.rows])
    else:
        _print_table(answer)


def _print_table(answer: Answer) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(answer.columns):
        numbers = all(isinstance(row[i], int | float | None) and not isinstance(row[i], bool) for row in answer.rows)
        table.add_column(name, justify="right" if numbers and answer.rows else "left", overflow="fold")
    for row in answer.rows:
        table.add_row(*(_short(value) for value in row))
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    console.print(table)
    typer.echo(f"{len(answer.rows):,} row{'' if len(answer.rows) == 1 else 's'}", err=True)


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
    """Text without what a terminal would obey: models write escape sequences too."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _finite(value: Any) -> Any:
    """JSON knows no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Any) -> Any:
    """A value as one piece of text: lists and structures as JSON, times in ISO form."""
    if isinstance(value, list | dict):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return _plain(value) if isinstance(value, datetime.date | datetime.timedelta | bytes) else value


def _plain(value: Any) -> Any:
    """What JSON has no form for."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
