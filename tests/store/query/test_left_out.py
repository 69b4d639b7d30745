"""Files that a question need not open: by conditions that all of its answer must meet, and by no others."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from weir.store.parquet.file_bounds import FileBounds
from weir.store.query.left_out import files_sql, leave_out, read_all

ALL = {"old", "new", "unnoted"}
FILES = """
    (0, 8, 'old', 10, 1, 3, 1000000, 2000000), (1, 8, 'new', 5, 3, 9, 1500000, 3000000),
    (2, 8, 'unnoted', 7, NULL, NULL, NULL, NULL)
"""


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA stored")
        connection.execute(
            "CREATE TABLE stored.files AS FROM (VALUES "
            f"{FILES}) f(place, schema_version, source, num_bytes, version_low, version_high, first_us, last_us)"
        )
        yield connection


def read(db: duckdb.DuckDBPyConnection, query: str, **parameters: object) -> set[str]:
    db.execute("BEGIN TRANSACTION READ ONLY")
    leave_out(db, query, parameters)
    ((files,),) = db.sql(f"SELECT {files_sql(8, sorted(ALL))}").fetchall()  # refused beside a result that is not read
    db.execute("ROLLBACK")
    read_all(db)
    return set(files)


@pytest.mark.parametrize(
    ("query", "left_out"),
    [
        ("SELECT count(*) FROM calls WHERE version_min >= 4 AND text = 'x'", "old"),
        ("SELECT count(*) FROM calls WHERE 2 >= version_max", "new"),
        ("FROM calls c WHERE c.version_max BETWEEN 10 - 6 AND 12", "old"),
        ("FROM calls WHERE version_max = $version", "old"),
        ("FROM calls WHERE started_us < 1400000", "new"),
        ("FROM calls WHERE finished_at > '1970-01-01 00:00:02.5'", "old"),
        ("FROM calls WHERE started_at > now() - INTERVAL 1 DAY", "old new"),
        ("FROM evaluations JOIN calls USING (call_id) WHERE version_max = 5", "old"),
        ("WITH late AS (FROM calls WHERE version_max = 5) FROM late a JOIN late b USING (call_id)", "old"),
        ("SELECT call_id FROM rewards WHERE NOT EXISTS (FROM calls c WHERE c.version_min > 4)", "old"),
        ("SELECT avg(logprob) FROM tokens WHERE version = 2", "new"),
        ("FROM calls WHERE version_max IN (4, $version, 3 + 3)", "old"),
        ("FROM calls a JOIN calls b USING (call_id) WHERE a.version_max = 5 AND b.version_min IN (4, 6)", "old"),
        ("(FROM calls WHERE version_max <= 2) UNION ALL (FROM calls WHERE version_min = 1)", "new"),
    ],
)
def test_files_without_a_call_of_the_answer_are_left_out(
    db: duckdb.DuckDBPyConnection, query: str, left_out: str
) -> None:
    assert read(db, query, version=5) == ALL - set(left_out.split())
    assert read(db, "FROM calls") == ALL, "the next question reads all"


@pytest.mark.parametrize(
    "query",
    [
        "FROM calls WHERE version_max = 5 OR depth = 0",
        "FROM calls WHERE NOT version_max = 5",
        "FROM calls WHERE version_max > depth",
        "FROM calls WHERE version_max > 20 * random()",
        "FROM calls WHERE version_max = 1 / 0",
        "FROM calls WHERE finished_at > 'no time'",
        "FROM (FROM calls) WHERE version_max = 5",
        "FROM calls, sessions WHERE version_max = 5",
        "FROM calls a JOIN calls b USING (call_id) WHERE a.version_max = 5",
        "FROM calls JOIN stored.calls s USING (call_id) WHERE version_max = 5",
        "FROM calls a JOIN tokens USING (call_id) WHERE version_max = 5",
        "FROM calls a, calls b WHERE version_max = 5",
        "(FROM calls WHERE version_max = 5) UNION ALL (FROM calls WHERE version_max = 1)",
        "FROM calls WHERE version_max IN (5, depth)",
        "FROM calls WHERE version_max NOT IN (1, 2)",
        "FROM calls WHERE version_max IN (SELECT version FROM versions)",
        "SELECT span_text(call_id, 0, 1) FROM calls WHERE version_max = 5",
        "FROM calls, query('FROM calls') WHERE version_max = 5",
        "FROM versions ANTI JOIN calls ON version = depth WHERE version_max = 5",
        "WITH calls AS (FROM rewards) FROM calls WHERE version_max = 5",
        "FROM calls c(version_max) WHERE version_max = 5",
        "FROM rewards WHERE version_max = 5",
        "SELEC version_max = 5",
    ],
)
def test_what_is_not_understood_leaves_no_file_out(db: duckdb.DuckDBPyConnection, query: str) -> None:
    assert read(db, query) == ALL


def test_bounds_are_those_of_all_tables_and_of_labels_that_are_numbers() -> None:
    def table(started_us: int, finished_us: int, *labels: str) -> pa.Table:
        spans = [{"start": 0, "end": 1, "label": label} for label in labels]
        kind = pa.list_(pa.struct([("start", pa.int32()), ("end", pa.int32()), ("label", pa.string())]))
        return pa.table(
            {"started_us": [started_us], "finished_us": [finished_us], "spans": pa.array([spans], type=kind)}
        )

    bounds = FileBounds()
    bounds.add(table(20, 30, "7", "assumed:4"))
    bounds.add(table(10, 5, "default"))  # its clock jumped
    assert (bounds.first_us, bounds.last_us, bounds.version_low, bounds.version_high) == (5, 30, 4, 7)
    bounds.add(table(20, 30, "step-12"))
    assert (bounds.version_low, bounds.version_high) == (None, None), "whether SQL makes a number of it is not told"
    bounds.add(table(20, 30, "9"))
    assert (bounds.version_low, bounds.version_high) == (None, None)
