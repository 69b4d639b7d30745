"""Which Parquet files a question leaves out: by their bounds in the catalog, no call of its answer can be in them.

A condition on versions or times that every row of an answer meets (`WHERE version_min >= 7 AND …`) bounds the files
that have such calls. The rest is not opened: DuckDB reads a file's end before it can tell. A question that reads calls
in several places needs the files of each. Invariant: what is not understood leaves no file out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from weir.store.query.sql.macros import MACROS
from weir.store.query.sql.views import VIEWS

FILES = "files"  # the table in the schema `stored`: the files with their bounds
Node = Mapping[str, Any]  # of DuckDB's JSON form of a query

_VARIABLE = "weir_files_"  # of the connection: the files of a schema version that its question needs
_VERSIONS = ("version_low", "version_high")
_TIMES = ("first_us", "last_us")
BOUNDS = (*_VERSIONS, *_TIMES)
_NUMBER = "CAST(NULL AS DOUBLE)"
_TIME = "CAST(epoch_us(CAST(NULL AS TIMESTAMP)) AS DOUBLE)"
_BOUNDED: dict[str, dict[str, tuple[tuple[str, str], str]]] = {  # of views: columns of files, and what compares
    "calls": {
        **dict.fromkeys(("version_min", "version_max"), (_VERSIONS, _NUMBER)),
        **dict.fromkeys(("started_us", "finished_us"), (_TIMES, _NUMBER)),
        **dict.fromkeys(("started_at", "finished_at"), (_TIMES, _TIME)),
    },
    "tokens": {"version": (_VERSIONS, _NUMBER)},
}
_NAMES = frozenset(name for columns in _BOUNDED.values() for name in columns)
_SIDES = {  # of a comparison: does it bound from below, from above; and seen from the other side
    "COMPARE_EQUAL": (True, True),
    "COMPARE_GREATERTHAN": (True, False),
    "COMPARE_GREATERTHANOREQUALTO": (True, False),
    "COMPARE_LESSTHAN": (False, True),
    "COMPARE_LESSTHANOREQUALTO": (False, True),
}
_SHOWING = frozenset(("INNER", "LEFT", "RIGHT", "OUTER"))
_PLAIN = frozenset(("CONSTANT", "CAST", "TYPE"))  # what a value to compare with may be made of, with these functions
_SAME_FOR_ALL_ROWS = frozenset(
    (
        *("+", "-", "*", "/", "//", "trunc", "now", "today", "date_trunc", "strptime"),
        *("make_timestamp", "epoch_us", "epoch_ms", "epoch", "to_years", "to_months", "to_weeks", "to_days"),
        *("to_hours", "to_minutes", "to_seconds", "to_milliseconds", "to_microseconds"),
    )
)
_TABLE_FUNCTIONS = frozenset(("unnest", "range", "generate_series", "json_each", "json_tree"))  # that read no calls


@dataclass(frozen=True, slots=True)
class Bound:
    """A value that a column of each answered call reaches at least, or at most."""

    columns: tuple[str, str]  # of a file: the lowest and the highest of its calls
    low: float | None = None
    high: float | None = None

    def sql(self) -> str:
        """The condition on a file."""
        lowest, highest = self.columns
        parts = [f"coalesce({highest} >= {self.low!r}, true)"] if self.low is not None else []
        parts += [f"coalesce({lowest} <= {self.high!r}, true)"] if self.high is not None else []
        return " AND ".join(parts)


def files_sql(schema_version: int, sources: Sequence[str]) -> str:
    """The files of a schema version for read_parquet: those that the question needs, else all."""
    listed = ", ".join("'" + source.replace("'", "''") + "'" for source in sources)
    return f"coalesce(getvariable('{_variable(schema_version)}'), [{listed}])"


def leave_out(connection: duckdb.DuckDBPyConnection, query: str, parameters: Mapping[str, object]) -> None:
    """Have what the connection runs next read only the files that this query needs, until `read_all`."""
    if not any(name in query.lower() for name in _NAMES):
        return
    of_reads = _bounds(connection, query, parameters)
    if of_reads and all(of_reads):
        _choose(connection, of_reads)
    connection.abort()  # a query that is run by `sql` is refused beside a result that is not read to its end


def _choose(connection: duckdb.DuckDBPyConnection, of_reads: Sequence[Sequence[Bound]]) -> None:
    chosen = " OR ".join(f"({' AND '.join(bound.sql() for bound in bounds)})" for bounds in of_reads)
    versions = connection.execute(f"SELECT DISTINCT schema_version FROM stored.{FILES}").fetchall()
    for (schema_version,) in versions:
        files = f"stored.{FILES} WHERE schema_version = {schema_version}"
        connection.execute(
            f"SET VARIABLE {_variable(schema_version)} = coalesce("
            f"(SELECT list(source ORDER BY place) FROM {files} AND ({chosen})), "
            f"(SELECT [arg_min(source, num_bytes)] FROM {files}))"  # it gives the columns
        )


def read_all(connection: duckdb.DuckDBPyConnection) -> None:
    """Leave no file out any more."""
    for (name,) in connection.execute("SELECT name FROM duckdb_variables()").fetchall():
        if name.startswith(_VARIABLE):
            connection.execute(f"RESET VARIABLE {name}")


def _variable(schema_version: int) -> str:
    return f"{_VARIABLE}{schema_version}"


def _bounds(connection: duckdb.DuckDBPyConnection, query: str, parameters: Mapping[str, object]) -> list[list[Bound]]:
    """For each place where the query reads calls, the bounds of those that it needs there."""
    (text,) = connection.execute("SELECT json_serialize_sql($1)", [query]).fetchone() or ("{}",)
    tree = json.loads(text)
    if tree.get("error") is not False or len(tree["statements"]) != 1:
        return []
    return [
        [
            Bound(columns, min(found) if is_low else None, max(found) if is_high else None)
            for columns, template, (is_low, is_high), values in _conditions(select, table)
            if (found := _values(connection, template, values, parameters))
        ]
        for select, table in _reads(tree)
    ]


def _conditions(select: Node, table: Node) -> Iterator[tuple[tuple[str, str], str, tuple[bool, bool], Sequence[Node]]]:
    """What a SELECT asks of the columns of a table: columns of files, what compares, sides, values."""
    bounded = _BOUNDED[table["table_name"].lower()]
    names = {str(table["alias"] or table["table_name"]).lower()}
    others = [one for one in _joined(select["from_table"]) if one is not table and one["type"] == "BASE_TABLE"]
    of_others = {name for one in others for name in _BOUNDED.get(one["table_name"].lower(), ())}
    for column, kind, values in _comparisons(select["where_clause"]):
        path = [str(name).lower() for name in column["column_names"]]
        if path[-1] not in bounded or len(path) > 2 or not names.issuperset(path[:-1]):
            continue
        if len(path) == 1 and (path[-1] in of_others or not _shows_all(select["from_table"])):
            continue  # it may be another table's
        columns, template = bounded[path[-1]]
        yield columns, template, _SIDES[kind], values


def _reads(tree: Node) -> list[tuple[Node, Node]]:
    """The SELECTs that read calls, each with its reference to their view; none where calls may be read elsewhere."""
    nodes = list(_nodes(tree))
    if any(_may_read_calls(node) for node in nodes):
        return []
    named = {str(entry["key"]).lower() for node in nodes if "cte_map" in node for entry in node["cte_map"]["map"]}
    tables = [node for node in nodes if node.get("type") == "BASE_TABLE"]
    references = {table["table_name"].lower() for table in tables}
    if named & VIEWS.keys() or not references <= named | _FREE | _BOUNDED.keys():
        return []
    of_calls = [table for table in tables if table["table_name"].lower() in _BOUNDED]
    reads = [
        (node, table)
        for node in nodes
        if node.get("type") == "SELECT_NODE"
        for table in _joined(node["from_table"])
        if any(table is one for one in of_calls)
    ]
    return reads if len(of_calls) == len(reads) else []


def _may_read_calls(node: Node) -> bool:
    """Whether calls are read where no view of them is named."""
    kind, name = node.get("type"), str(node.get("function_name", "")).lower()
    if kind == "BASE_TABLE":
        return bool(node["schema_name"] or node["catalog_name"] or node["sample"] or node["column_name_alias"])
    if kind == "TABLE_FUNCTION":
        return str(node["function"]["function_name"]).lower() not in _TABLE_FUNCTIONS
    return name in _READING


def _shows_all(table: Node) -> bool:
    """Whether the columns of all joined tables can be named behind the FROM: a column of two would be refused."""
    if table["type"] != "JOIN":
        return True
    return table["join_type"] in _SHOWING and _shows_all(table["left"]) and _shows_all(table["right"])


def _joined(table: Node) -> Iterator[Node]:
    """The tables of a FROM, joined or not, without those of subqueries."""
    if table["type"] == "JOIN":
        yield from _joined(table["left"])
        yield from _joined(table["right"])
    else:
        yield table


def _comparisons(condition: Node | None) -> Iterator[tuple[Node, str, Sequence[Node]]]:
    """What must hold of columns: the column, the kind of comparison, and the values; with one of them it holds."""
    kind = "" if condition is None else condition["type"]
    if condition is None:
        return
    if kind == "CONJUNCTION_AND":
        for part in condition["children"]:
            yield from _comparisons(part)
    elif kind == "COMPARE_BETWEEN":
        if condition["input"]["class"] == "COLUMN_REF":
            yield condition["input"], "COMPARE_GREATERTHANOREQUALTO", [condition["lower"]]
            yield condition["input"], "COMPARE_LESSTHANOREQUALTO", [condition["upper"]]
    elif kind == "COMPARE_IN":
        column, *values = condition["children"]
        if column["class"] == "COLUMN_REF":
            yield column, "COMPARE_EQUAL", values
    elif kind in _SIDES:
        left, right = condition["left"], condition["right"]
        if left["class"] == "COLUMN_REF":
            yield left, kind, [right]
        elif right["class"] == "COLUMN_REF":
            yield right, _turned(kind), [left]


def _turned(kind: str) -> str:
    """A comparison seen from its other side."""
    if "LESS" in kind:
        return kind.replace("LESS", "GREATER")
    return kind.replace("GREATER", "LESS")


def _values(
    connection: duckdb.DuckDBPyConnection, template: str, values: Sequence[Node], parameters: Mapping[str, object]
) -> list[float]:
    """What a column is compared with, as numbers; none where one of them depends on the row, or is no number."""
    found = [_value(connection, template, value, parameters) for value in values]
    numbers = [one for one in found if one is not None]
    return numbers if len(numbers) == len(values) else []


def _value(
    connection: duckdb.DuckDBPyConnection, template: str, value: Node, parameters: Mapping[str, object]
) -> float | None:
    """What a column is compared with, as a number; None where it depends on the row, or is none."""
    if value["class"] == "PARAMETER":
        query, given = f"SELECT TRY({template.replace('NULL', '$1')})", [parameters.get(value["identifier"])]
    elif all(_is_plain(node) for node in _nodes(value) if "class" in node):
        (text,) = connection.execute("SELECT json_serialize_sql($1)", [f"SELECT TRY({template})"]).fetchone() or ("",)
        tree = json.loads(text)
        query, given = "FROM json_execute_serialized_sql($1)", [json.dumps(_with_value(tree, value))]
    else:
        return None
    try:
        (found,) = connection.execute(query, given).fetchone() or (None,)
    except duckdb.Error:  # the question itself will say what is wrong with it
        return None
    return found if found is not None and math.isfinite(found) else None


def _is_plain(node: Node) -> bool:
    """Whether what stands here has one value in the whole query, if what it is made of has."""
    return node["class"] in _PLAIN or (node["class"] == "FUNCTION" and node["function_name"] in _SAME_FOR_ALL_ROWS)


def _with_value(tree: Any, value: Node) -> Any:
    """A query with the value in the place of its NULL."""
    if isinstance(tree, list):
        return [_with_value(one, value) for one in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("type") == "VALUE_CONSTANT":
        return value
    return {name: _with_value(one, value) for name, one in tree.items()}


def _nodes(tree: Any) -> Iterator[Node]:
    if isinstance(tree, dict):
        yield tree
        for one in tree.values():
            yield from _nodes(one)
    elif isinstance(tree, list):
        for one in tree:
            yield from _nodes(one)


def _that_read_calls() -> frozenset[str]:
    """The names of views and macros that read calls."""
    texts = {**VIEWS, **{re.split(r"[\s(]", macro.strip(), maxsplit=1)[0]: macro for macro in MACROS}}
    found = {"stored.calls"}
    while more := {
        name
        for name, text in texts.items()
        if name not in found and any(re.search(rf"(?<![\w.]){re.escape(one)}\b", text) for one in found)
    }:
        found |= more
    return frozenset(found)


_READING = _that_read_calls()
_FREE = frozenset(VIEWS) - _READING
