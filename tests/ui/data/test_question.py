"""Answers to questions: what is shown of them, what a file has, and how much of a huge value reaches Python."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import duckdb
import pytest

from weir.ui.data import question
from weir.ui.data.question import CELL_CHARACTERS, answer, as_csv, as_json_lines

VALUES = """SELECT 1 AS a, 1.50 AS price, DATE '2026-01-02' AS day, TIMESTAMPTZ '2026-01-02 03:04:05+00' AS at,
    [1, 2] AS list, {'x': 'nan'::DOUBLE} AS named, 'ab'::BLOB AS bytes, NULL AS nothing, 0.5::FLOAT AS half"""


@pytest.fixture
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '600MiB'; SET temp_directory = ''; SET TimeZone = 'UTC'")
        yield connection


def test_each_kind_of_value_is_shown(cursor: duckdb.DuckDBPyConnection) -> None:
    shown = answer(cursor, VALUES)
    assert shown["rows"] == [[1, 1.5, "2026-01-02", "2026-01-02 03:04:05.000", "[1,2]", '{"x":NaN}', "YWI=", None, 0.5]]
    assert shown["columns"][:2] == ["a", "price"] and shown["types"][4] == "INTEGER[]" and not shown["cut"]


@pytest.mark.parametrize(
    ("query", "end"),
    [
        ("SELECT list(range) AS all_of_them FROM range(10000000)", "… (10,000,000 values)"),
        ("SELECT repeat('x', 50000000)", "x… (50,000,000 characters)"),
        ("SELECT [repeat('x', 5000)]", "x… (5,004 characters)"),
        ("SELECT {'a': repeat('x', 5000)}", "x… (5,008 characters)"),
        ("SELECT list_value('é')[1:1] || list_transform(range(3000), lambda i: 'é')", "… (3,001 values)"),
    ],
)
def test_a_huge_value_is_cut_before_python_has_it(
    cursor: duckdb.DuckDBPyConnection, query: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[object] = []

    def keep(value: object) -> object:
        taken.append(value)
        return value

    monkeypatch.setattr(question, "_scalar", keep)
    shown = answer(cursor, query)
    ((value,),) = shown["rows"]
    assert value.endswith(end) and len(value) == CELL_CHARACTERS + len(end.lstrip("x")), value[-40:]
    assert shown["cut"] and taken == [value]


def test_a_value_of_the_limit_is_whole(cursor: duckdb.DuckDBPyConnection) -> None:
    shown = answer(cursor, f"SELECT repeat('x', {CELL_CHARACTERS}) AS text")
    assert shown["rows"] == [["x" * CELL_CHARACTERS]] and not shown["cut"]


@pytest.mark.parametrize(
    "query",
    [
        *("SELECT 1 AS n; -- done", "SELECT 1 AS n -- ;", "VALUES (1)", "FROM range(1, 2)", "SELECT 1 AS n ;; /* ; */"),
        "WITH t AS (SELECT 1 AS n) FROM t ORDER BY n",
    ],
)
def test_every_form_of_one_statement_is_answered(cursor: duckdb.DuckDBPyConnection, query: str) -> None:
    assert answer(cursor, query)["rows"] == [[1]]
    assert b"".join(as_csv(cursor, query)).endswith(b"\n1\n")


def test_a_plan_is_shown(cursor: duckdb.DuckDBPyConnection) -> None:
    assert "physical_plan" in answer(cursor, "EXPLAIN SELECT 1")["rows"][0]


def test_the_order_of_an_answer_stays(cursor: duckdb.DuckDBPyConnection) -> None:
    shown = answer(cursor, "SELECT range AS n FROM range(100000) ORDER BY n DESC")
    assert shown["rows"][0] == [99_999] and shown["rows"][-1] == [99_000] and shown["truncated"]


def test_a_file_for_a_table_program_has_plain_values(cursor: duckdb.DuckDBPyConnection) -> None:
    (_, values) = csv.reader(io.StringIO(b"".join(as_csv(cursor, VALUES)).decode()))
    assert values == [
        "1",
        "1.50",
        "2026-01-02",
        "2026-01-02 03:04:05.000+00:00",
        "[1,2]",
        '{"x":NaN}',
        "YWI=",
        "",
        "0.5",
    ]


def test_a_line_of_a_file_is_json_also_where_a_number_is_none(cursor: duckdb.DuckDBPyConnection) -> None:
    (line,) = b"".join(as_json_lines(cursor, VALUES)).splitlines()
    found = json.loads(line)
    assert found["named"] == {"x": None} and found["list"] == [1, 2] and found["nothing"] is None


def test_long_rows_of_a_file_come_in_small_pieces(
    cursor: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "PIECE_BYTES", 100_000)
    query = "SELECT range AS n, repeat('x', 10000) AS text FROM range(500)"
    for form in (as_csv, as_json_lines):
        pieces = list(form(cursor, query))
        assert max(map(len, pieces)) < 150_000
        assert b"".join(pieces).count(b"\n") == 500 + (form is as_csv)
