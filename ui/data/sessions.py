"""The table of sessions: one page of it, filtered by a WHERE clause and sorted by a column, and its facets.

A filter is a condition in DuckDB's SQL over the table `session_rows`; it runs as any question does, read-only and
within the limits of time and memory. Pages follow each other by the last row's sort value and id (keyset), so that a
page deep in a table of millions costs what the first one does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import duckdb

from weir.store.query.question import check_question, first_sentence
from weir.ui.data.rows import Row, rows
from weir.ui.errors import BadQuestion

PAGE_ROWS = 100
FACETS = ("status", "task_id", "version_max", "fault", "level", "agent", "finish")
FACET_VALUES = 8  # shown of each facet, the most frequent first
SORT_COLUMNS = (
    *("started_at", "last_call_at", "reward", "num_calls", "num_turns", "num_new_tokens", "num_output_tokens"),
    *("version_max", "session_id", "group_id", "task_id", "status", "fault", "agent"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which rows of the table: those of the filter, from a place in an order on."""

    where: str = ""
    sort: str = "started_at"
    descending: bool = True
    after: str = ""  # what `next` of the page before says

    def __post_init__(self) -> None:
        if self.sort not in SORT_COLUMNS:
            raise BadQuestion(f"cannot sort by {self.sort!r}: choose one of {', '.join(SORT_COLUMNS)}")


def sessions_page(cursor: duckdb.DuckDBPyConnection, page: Page) -> dict[str, Any]:
    """The rows of a page, how many sessions the filter has in all, its facets, and where the next page begins.

    Raises BadQuestion for a filter that the table refuses, or an `after` that no page gave.
    """
    condition = filter_condition(cursor, page.where)
    num_sessions = count_sessions(cursor, condition)
    beyond, given = _beyond(page)
    way = "DESC" if page.descending else "ASC"
    found = rows(
        cursor,
        f"SELECT * FROM session_rows WHERE {condition} AND {beyond} "
        f"ORDER BY {page.sort} {way} NULLS LAST, session_id LIMIT {PAGE_ROWS + 1}",
        given,
    )
    shown = found[:PAGE_ROWS]
    return {
        "sessions": shown,
        "num_sessions": num_sessions,
        "next": _after(shown[-1], page.sort) if len(found) > PAGE_ROWS else None,
        "facets": [{"name": name, "values": _facet(cursor, name, condition)} for name in FACETS],
    }


def filter_condition(cursor: duckdb.DuckDBPyConnection, where: str) -> str:
    """The filter in brackets. It must parse with and without them, so it can neither leave them nor add a clause.

    Raises BadQuestion.
    """
    if not where.strip():
        return "true"
    try:
        for condition in (f"(\n{where}\n)", f"\n{where}"):
            check_question(cursor, f"SELECT 1 FROM session_rows WHERE {condition}")
    except duckdb.Error as error:
        raise BadQuestion(
            f"the filter is not a condition: {str(error).splitlines()[0]}; an example: reward > 0.5 AND fault IS NULL"
        ) from error
    return f"(\n{where}\n)"


def count_sessions(cursor: duckdb.DuckDBPyConnection, condition: str) -> int:
    """How many sessions a condition selects. Raises BadQuestion, with the columns, for one that the table refuses."""
    columns = [name for name, *_ in cursor.execute("SELECT * FROM session_rows LIMIT 0").description]
    try:
        return int(rows(cursor, f"SELECT count(*) AS n FROM session_rows WHERE {condition}")[0]["n"])
    except (duckdb.InterruptException, duckdb.OutOfMemoryException):
        raise
    except duckdb.Error as error:
        raise BadQuestion(f"the filter: {first_sentence(error)} (columns: {', '.join(columns)})") from error


def _beyond(page: Page) -> tuple[str, dict[str, Any]]:
    """The condition for rows after the last one of the page before; NULLs come last in either direction."""
    if not page.after:
        return "true", {}
    try:
        value, session_id = json.loads(page.after)
        if not isinstance(session_id, str) or not isinstance(value, str | int | float | None):
            raise TypeError
    except (ValueError, TypeError, RecursionError) as error:
        raise BadQuestion("the parameter `after` is not one that a page gave; begin again without it") from error
    if value is None:
        return f"({page.sort} IS NULL AND session_id > $last_id)", {"last_id": session_id}
    further = "<" if page.descending else ">"
    last = f"(SELECT CAST($last AS {_type_of(page.sort)}))"
    return (
        f"({page.sort} {further} {last} OR {page.sort} IS NULL OR ({page.sort} = {last} AND session_id > $last_id))",
        {"last": str(value), "last_id": session_id},
    )


def _type_of(column: str) -> str:
    if column.endswith("_at"):
        return "TIMESTAMP"
    return "DOUBLE" if column == "reward" or column.startswith(("num_", "version_")) else "VARCHAR"


def _after(row: Row, sort: str) -> str:
    value = row[sort]
    return json.dumps([value if value is None or isinstance(value, int | float) else str(value), row["session_id"]])


def _facet(cursor: duckdb.DuckDBPyConnection, name: str, condition: str) -> list[Row]:
    """The most frequent values of a column among the filtered sessions, each with the filter that selects it."""
    values = rows(
        cursor,
        f"SELECT {name} AS value, count(*) AS num_sessions FROM session_rows WHERE {condition} "
        f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {FACET_VALUES}",
    )
    return [row | {"filter": _equals(name, row["value"])} for row in values]


def _equals(name: str, value: Any) -> str:
    if value is None:
        return f"{name} IS NULL"
    return f"{name} = {value}" if isinstance(value, int) else f"{name} = '" + str(value).replace("'", "''") + "'"
