"""Answers of DuckDB as dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

Row = dict[str, Any]


def rows(cursor: duckdb.DuckDBPyConnection, query: str, given: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
    """All rows of a query, by the names of its columns."""
    result = cursor.execute(query, given) if given else cursor.execute(query)
    names = [name for name, *_ in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
