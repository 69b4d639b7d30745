"""The table of sessions: filters, orders, pages that follow each other, and facets."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from weir.store.errors import QueryRefused
from weir.store.query.question import asking
from weir.ui.data.sessions import PAGE_ROWS, SORT_COLUMNS, Page, sessions_page
from weir.ui.errors import BadQuestion

ROWS = 2 * PAGE_ROWS + 50


@pytest.fixture(scope="module")
def table() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(
            f"""CREATE TABLE session_rows AS SELECT 's' || lpad(i::VARCHAR, 5, '0') AS session_id,
            'g' || i % 7 AS group_id, CASE WHEN i % 3 > 0 THEN 't''' || i % 3 END AS task_id,
            ['done', 'failed', NULL][1 + i % 3] AS status, CASE WHEN i % 4 > 0 THEN i % 5 / 4 END AS reward,
            CASE WHEN i % 6 = 0 THEN 'wrong_answer' END AS fault, i % 9 AS num_calls, i % 4 AS num_turns,
            i AS num_new_tokens, i * 2 AS num_output_tokens, i // 50 AS version_max, 'tokens' AS level,
            'agent' AS agent, 'stop' AS finish, make_timestamp(i * 1000000) AS started_at,
            make_timestamp(i * 2000000) AS last_call_at FROM range({ROWS}) r(i)"""
        )
        yield connection


def all_pages(table: duckdb.DuckDBPyConnection, **given: object) -> list[str]:
    found, after = [], ""
    while True:
        page = sessions_page(table, Page(after=after, **given))  # type: ignore[arg-type]
        found += [row["session_id"] for row in page["sessions"]]
        if page["next"] is None:
            return found
        after = page["next"]


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort", SORT_COLUMNS)
def test_the_pages_of_every_order_hold_every_session_once_and_in_order(
    table: duckdb.DuckDBPyConnection, sort: str, descending: bool
) -> None:
    way = "DESC" if descending else "ASC"
    whole = table.execute(
        f"SELECT session_id FROM session_rows ORDER BY {sort} {way} NULLS LAST, session_id"
    ).fetchall()
    assert all_pages(table, sort=sort, descending=descending) == [name for (name,) in whole]


def test_a_filter_chooses_rows_counts_them_and_narrows_the_facets(table: duckdb.DuckDBPyConnection) -> None:
    page = sessions_page(table, Page(where="reward > 0.5 AND fault IS NULL -- the good ones"))
    wanted = "SELECT count(*) FROM session_rows WHERE reward > 0.5 AND fault IS NULL"
    assert [page["num_sessions"]] == [count for (count,) in table.execute(wanted).fetchall()]
    faults = next(facet for facet in page["facets"] if facet["name"] == "fault")
    assert [row["value"] for row in faults["values"]] == [None]


def test_the_filter_of_each_facet_value_selects_as_many_rows_as_it_says(table: duckdb.DuckDBPyConnection) -> None:
    for facet in sessions_page(table, Page())["facets"]:
        for row in facet["values"]:
            assert sessions_page(table, Page(where=row["filter"]))["num_sessions"] == row["num_sessions"]


@pytest.mark.parametrize(
    "where", ["rewar", "1 = 1); DROP TABLE session_rows; SELECT (1", "1) OR (1 = 1", "true ORDER BY 1", "reward >"]
)
def test_what_is_no_condition_is_refused(table: duckdb.DuckDBPyConnection, where: str) -> None:
    with pytest.raises((BadQuestion, QueryRefused)), table.cursor() as cursor, asking(cursor):
        sessions_page(cursor, Page(where=where))
    assert table.execute("SELECT count(*) FROM session_rows").fetchone() == (ROWS,)
