"""`weir sql`, run as a user runs it: answers in four formats, parameters, limits, and refusals."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support_model import make_tiny_model
from tokenizers import Tokenizer
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.scripts.launch.errors import CommandError
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.errors import StoreError
from weir.store.reader import connect


def sql(folder: Path, *words: str, stdin: str = "") -> tuple[int, str, str]:
    """Exit status, stdout and stderr of `weir sql` in a folder without a weir.toml, errors as `weir` prints them."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, ["sql", *words], input=stdin)
    if isinstance(done.exception, StoreError | CommandError):
        return done.exception.exit_code, done.stdout, f"weir: {done.exception}\n"
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def filled(config: StoreConfig, record: Any, make_call: Any) -> list[str]:
    """Arguments that name a store with session s-1 of two calls, and its neighbour s-2."""
    catalog = Catalog.open(config)
    catalog.register_session("s-1", "g", task={"task_id": "t"}, group_size=2, metadata={}, key_hash="secret")
    catalog.close()
    text = "one [line]\nand another"
    record(
        [
            make_call("a", [1], [2, 3], session_id="s-1", text=text, versions=[(1, "1"), (1, "2")]),
            make_call("b", [1, 2, 3, 4], [5], session_id="s-1", at=2_000_000, text=""),
            make_call("c", [9], [9], session_id="s-2", at=3_000_000),
        ]
    )
    return ["--root", str(config.root)]


def test_an_answer_is_a_table_json_or_csv(tmp_path: Path, filled: list[str]) -> None:
    query = "SELECT call_id, text, output_ids, started_at FROM calls ORDER BY 1 LIMIT 1"
    status, out, err = sql(tmp_path, query, *filled)
    assert (status, err) == (0, "1 row\n")
    assert [line.split() for line in out.splitlines() if "one" in line] == [
        ["a", "one", "[line]", "and", "another", "[2,", "3]", "1970-01-01T00:00:01"]
    ]
    assert json.loads(sql(tmp_path, "-f", "json", query, *filled)[1]) == [
        {"call_id": "a", "text": "one [line]\nand another", "output_ids": [2, 3], "started_at": "1970-01-01T00:00:01"}
    ]
    assert sql(tmp_path, "--format", "csv", *filled, stdin=query)[1] == (
        'call_id,text,output_ids,started_at\na,"one [line]\nand another","[2, 3]",1970-01-01T00:00:01\n'
    )


def test_json_columns_are_json_in_json_and_no_rows_are_an_empty_array(tmp_path: Path, filled: list[str]) -> None:
    query = "SELECT answer, task FROM calls JOIN groups USING (group_id) WHERE call_id = 'a'"
    assert json.loads(sql(tmp_path, "-f", "json", query, *filled)[1]) == [
        {"answer": {"role": "assistant", "content": "one [line]\nand another"}, "task": {"task_id": "t"}}
    ]
    assert sql(tmp_path, "-f", "json", "SELECT 1 WHERE false", *filled)[1] == "[]\n"


def test_times_with_a_zone_are_given_in_utc_and_numbers_that_json_lacks_as_null(
    tmp_path: Path, filled: list[str]
) -> None:
    query = """SELECT TIMESTAMPTZ '2026-01-02 03:04:05+01' AS "at ""noon""\", ['nan'::DOUBLE, $x] AS x -- of calls"""
    assert json.loads(sql(tmp_path, "-f", "json", query, "-p", "x=1.5", *filled)[1]) == [
        {'at "noon"': "2026-01-02T02:04:05", "x": [None, 1.5]}
    ]


def test_an_answer_in_a_file_is_there_whole_or_not_at_all(tmp_path: Path, filled: list[str]) -> None:
    query = "SELECT call_id, output_ids FROM calls ORDER BY 1"
    assert sql(tmp_path, query, "-f", "parquet", "-o", "answer.parquet", *filled) == (0, "", "3 rows\n")
    assert pq.read_table(tmp_path / "answer.parquet").to_pylist() == [
        {"call_id": "a", "output_ids": [2, 3]},
        {"call_id": "b", "output_ids": [5]},
        {"call_id": "c", "output_ids": [9]},
    ]
    assert sql(tmp_path, query, "-f", "csv", "-o", "answer.csv", *filled) == (0, "", "")
    assert (tmp_path / "answer.csv").read_text().splitlines()[0] == "call_id,output_ids"
    status, _, err = sql(tmp_path, "SELECT error('no') FROM calls", "-f", "parquet", "-o", "none.parquet", *filled)
    assert status == 2 and "no" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.csv", "answer.parquet", "store"]
    assert "name a file for it" in sql(tmp_path, query, "-f", "parquet", *filled)[2]


def test_parameters_have_the_type_that_they_look_like(tmp_path: Path, filled: list[str]) -> None:
    query = "SELECT typeof($n) AS n, typeof($x) AS x, $text AS text, $quoted AS quoted, $b AND true AS b"
    given = ["n=5", "x=0.5", "text=a=b", 'quoted="5"', "b=true"]
    words = [word for pair in given for word in ("--param", pair)]
    assert json.loads(sql(tmp_path, "-f", "json", query, *words, *filled)[1]) == [
        {"n": "INTEGER", "x": "DOUBLE", "text": "a=b", "quoted": "5", "b": True}
    ]
    status, _, err = sql(tmp_path, "SELECT count(*) FROM calls WHERE session_id = $s", *filled)
    assert status == 2 and "not provided for the following parameters: s" in err
    assert "expected NAME=VALUE" in sql(tmp_path, "SELECT 1", "-p", "=1", *filled)[2]


def test_a_table_shows_its_first_thousand_rows_and_says_so(tmp_path: Path, filled: list[str]) -> None:
    status, out, err = sql(tmp_path, "SELECT 'row' FROM range(1500)", *filled)
    assert (status, out.count(" row")) == (0, 1000)
    assert err == "1,500 rows, of which 1,000 are shown; --format csv gives all\n"


def test_a_query_that_takes_too_long_or_too_much_is_stopped_and_says_why(tmp_path: Path, filled: list[str]) -> None:
    endless = "SELECT count(*) FROM range(1000000000000) a WHERE hash(a.range) = 1"
    status, out, err = sql(tmp_path, endless, "--timeout-s", "0.2", *filled)
    assert (status, out) == (1, "")
    assert err == "weir: the query was stopped: it took longer than 0.2 s; raise the limit (--timeout-s)\n"
    large = "SELECT list(range) FROM range(100000000)"
    status, out, err = sql(tmp_path, large, "--memory-mb", "64", *filled)
    assert (status, out) == (1, "")
    assert err.startswith("weir: the query was stopped: it needs more memory than allowed")


def test_tokens_have_texts_where_the_tokenizer_is_named(
    tmp_path: Path, config: StoreConfig, record: Any, make_call: Any
) -> None:
    model = make_tiny_model(tmp_path / "model")
    ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode("a kernel<|im_end|>").ids
    record([make_call("a", [1], ids)])
    root = ["--root", str(config.root)]
    query = "SELECT span_text('a', 0, 99) AS whole, token_text(output_ids[:1]) AS start FROM calls"
    assert json.loads(sql(tmp_path, "-f", "json", query, "--tokenizer", str(model), *root)[1]) == [
        {"whole": "a kernel<|im_end|>", "start": "a"}
    ]
    status, _, err = sql(tmp_path, query, *root)
    assert status == 2 and err.startswith("weir: token_text needs the model's tokenizer: weir sql --tokenizer DIR")
    assert "no tokenizer.json" in sql(tmp_path, query, "--tokenizer", str(config.root), *root)[2]


def test_explain_shows_a_plan(tmp_path: Path, filled: list[str]) -> None:
    for explain in ("EXPLAIN", "explain analyze", "EXPLAIN\nANALYZE\n"):
        status, out, _ = sql(tmp_path, f"{explain} SELECT count(*) FROM calls", *filled)
        assert status == 0 and "plan" in out


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT colour FROM calls", 'Referenced column "colour" not found'),
        ("SELECT * FROM cals", "Table with name cals does not exist"),
        ("SELEC", "syntax error"),
        ("DROP VIEW calls", "give one SELECT"),
        ("SELECT 1; DROP VIEW calls", "give one SELECT"),
        ("COPY (SELECT 1) TO 'x.csv'", "give one SELECT"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", "give one SELECT"),
        ("WITH a AS (DELETE FROM stored.hot RETURNING *) SELECT * FROM a", "read-only mode"),
        ("PIVOT calls ON role USING count(*)", "a PIVOT names its values"),
        ("", "give one SELECT"),
    ],
)
def test_a_wrong_query_is_one_line_and_status_2(tmp_path: Path, filled: list[str], query: str, message: str) -> None:
    status, out, err = sql(tmp_path, *filled, stdin=query)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err and ("calls, tokens, " in err or "PIVOT" in err)


def test_a_pivot_with_its_values_is_a_question(tmp_path: Path, filled: list[str]) -> None:
    query = "PIVOT (SELECT session_id, role FROM calls) ON role IN ('root', 'turn') USING count(*) ORDER BY ALL"
    assert sql(tmp_path, "-f", "csv", query, *filled)[1] == "session_id,root,turn\ns-1,1,1\ns-2,1,0\n"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "FROM enable_logging(storage = 'file', storage_path = 'log')",
    ],
)
def test_a_question_reaches_no_file_and_no_setting(tmp_path: Path, filled: list[str], query: str) -> None:
    status, out, err = sql(tmp_path, query, *filled)
    assert (status, out) == (2, "") and ("disabled" in err or "locked" in err)


def test_a_connection_loads_no_extension_and_attaches_no_file(config: StoreConfig, filled: list[str]) -> None:
    with connect(config) as db:
        for statement in ("ATTACH 'other.db'", "INSTALL httpfs", "LOAD httpfs", "SET memory_limit = '1TB'"):
            with pytest.raises(Exception, match=r"disabled|locked"):
                db.execute(statement)
        assert "secret" not in str(db.sql("SELECT * FROM stored.sessions").fetchall())
