"""docs/sql.md lists the columns of the views; every query of docs/cookbook.md runs and has an answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import ROUNDS, take_lease
from weir.store.catalog.rows import EvaluationRow
from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.store.query.sql.views import VIEWS
from weir.store.query.stored_call import StoredCalls
from weir.store.query.views import open_views
from weir.store.reader import connect

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "sql.md").read_text()
COOKBOOK = (DOCS / "cookbook.md").read_text()
QUERIES = re.findall(r"^### ([^\n]*[?])\n\n```sql\n(.*?)```", COOKBOOK, re.DOTALL | re.MULTILINE)
TOOL_CALL = json.dumps({"role": "assistant", "tool_calls": [{"function": {"name": "bash"}}]}).encode()


@pytest.fixture
def sample(config: StoreConfig, record: Any, make_call: Any) -> StoreConfig:
    """Two groups: one judged and consumed with different rewards and a retry, one finished and waiting."""
    catalog = Catalog.open(config)
    for group in ("g", "waiting"):
        for i in range(2):
            task = {"task_id": group}
            name = f"{group}{i}"
            catalog.register_session(name, group, task=task, group_size=2, metadata={}, key_hash=None)
            catalog.finish_session(name, status="done", info={})
    for call_id, session_id, reward in (("a", "g0", 0.3), ("b", "g0", 1.0), ("d", "g1", 0.1)):
        row = EvaluationRow(
            call_id=call_id,
            session_id=session_id,
            group_id="g",
            round_id=1,
            content_hash="h",
            compiled=True,
            correct=reward == 1.0,
            fault=None if reward == 1.0 else "wrong",
            raw_reward=reward,
            result={},
            created_us=1,
        )
        catalog.add_evaluations([row])
    lease = take_lease(catalog, ROUNDS, "test", 60)
    catalog.claim_groups(1, ["g"], {}, lease)
    catalog.commit_round(1, 3, {"loss": 0.5}, lease)
    catalog.add_version(3, path="versions/3", parent=None, round_id=1, manifest_sha256="aa")
    catalog.close()
    first = [make_call("a", [1], [2, 3], session_id="g0", at=1, versions=[(1, "1"), (1, "2")], held_us=9000)]
    record(first, writer="first")
    compact(config)
    more = [
        make_call("b", [1, 2, 3, 4], [5], session_id="g0", at=20_000, versions=[(1, "2")]),
        make_call("c", [1, 2, 3, 4], [6], session_id="g0", at=40_000, versions=[(1, "2")]),
        make_call("d", [1], [7], session_id="g1", at=60_000, versions=[(1, "2")], answer=TOOL_CALL),
    ]
    record(more, writer="second", seal=False)
    return config


def test_every_query_of_the_cookbook_has_its_question() -> None:
    assert len(QUERIES) == COOKBOOK.count("```sql") >= 20


@pytest.mark.parametrize(("question", "query"), QUERIES, ids=[question[:60] for question, _ in QUERIES])
def test_every_query_of_the_cookbook_has_an_answer(sample: StoreConfig, question: str, query: str) -> None:
    with connect(sample) as db:
        rows = db.sql(query).fetchall()
    assert rows and any(value is not None for value in rows[0])


def test_the_first_answer_of_the_cookbook_is_right(sample: StoreConfig) -> None:
    with connect(sample) as db:
        assert db.sql(QUERIES[0][1]).fetchall() == [(2, 3, pytest.approx(1.4 / 3), pytest.approx(1 / 3))]


@pytest.mark.parametrize("view", VIEWS)
def test_the_page_lists_the_columns_of_every_view(config: StoreConfig, view: str) -> None:
    section = re.split(rf"^### {view}\b.*$", PAGE, flags=re.MULTILINE)[1].split("\n#")[0]
    table = re.findall(r"^\| ([a-z_, ]+) \|", section, re.MULTILINE)[1:]
    listed = ", ".join(table) if table else re.sub(r"\([^)]*\)", "", section).strip(" .\n")
    with connect(config) as db:
        columns = {name for (name,) in db.sql(f"SELECT column_name FROM (DESCRIBE {view})").fetchall()}
    assert {name.strip() for name in listed.replace("\n", " ").split(",")} == columns


def test_a_cursor_has_the_settings_of_its_connection(sample: StoreConfig) -> None:
    """Else times are in the machine's zone, and every question reads the footers of all files again."""
    settings = "SELECT name, value FROM duckdb_settings() ORDER BY name"
    with open_views(sample) as connection, connection.cursor() as cursor:
        assert cursor.execute(settings).fetchall() == connection.execute(settings).fetchall()
        assert cursor.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
        assert cursor.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(False,)]


def test_calls_are_told_apart_by_the_settings_of_their_engines(
    config: StoreConfig, make_call: Any, record: Any
) -> None:
    wide, narrow = '[{"dtype":"float32"}]', '[{"dtype":"bfloat16"},{"dtype":"float32"}]'
    calls = [
        make_call(f"call_{i}", [1], [2], session_id=f"s_{i}", engine_settings=settings)
        for i, settings in enumerate((wide, narrow, wide, ""))
    ]
    record(calls[:2])
    compact(config)
    record(calls[2:])
    with connect(config) as db:
        found = db.sql(
            "SELECT engine_settings->>'$[0].dtype', list(call_id ORDER BY call_id) FROM calls "
            "GROUP BY engine_digest, 1 ORDER BY min(call_id)"
        ).fetchall()
    assert found == [("float32", ["call_0", "call_2"]), ("bfloat16", ["call_1"]), (None, ["call_3"])]
    catalog = Catalog.open(config)
    stored = StoredCalls(config, catalog).read("call_1")
    catalog.close()
    assert stored is not None and stored.engine_settings == narrow
