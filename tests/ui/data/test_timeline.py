"""Rounds over time: where each step of a round stands in the picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from weir.ui.data.timeline import THINNEST, timeline


@pytest.fixture
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    """Round 1 before steps were timed, 2 and 3 with steps, 4 that trains now."""
    second = [["claim", 100.0, 1.0], ["judge", 101.0, 4.0], ["train", 105.0, 5.0], ["garbage", 110.0, 9.0]]
    third = [["judge", 150.0, 2.0], ["judge", 152.0, 3.0], ["gates_close", 199.99, 0.01], ["publish", 199.0, 1.0]]
    metrics: dict[int, Any] = {1: {}, 2: {"timeline": second}, 3: {"timeline": third}, 4: None}
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE rounds (round_id BIGINT, weight_version BIGINT, metrics JSON)")
        for number, of_round in metrics.items():
            version = number if of_round is not None else None
            connection.execute("INSERT INTO rounds VALUES ($1, $2, $3)", [number, version, json.dumps(of_round)])
        yield connection


def lane(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return next(one["spans"] for one in found["lanes"] if one["name"] == name)


def test_steps_stand_where_they_ran_from_the_first_to_the_last(cursor: duckdb.DuckDBPyConnection) -> None:
    found = timeline(cursor, 20, None)
    assert (found["began"], found["ended"]) == (100.0, 200.0)
    assert [(span["round"], span["x"], span["width"]) for span in lane(found, "judge")] == [
        (2, 10.0, 40.0),
        (3, 500.0, 20.0),
        (3, 520.0, 30.0),
    ]
    (held,) = lane(found, "hold")
    assert held["step"] == "gates_close" and held["width"] == THINNEST, "the shortest step can be seen"


def test_the_table_has_the_seconds_of_each_phase_newest_round_first(cursor: duckdb.DuckDBPyConnection) -> None:
    found = timeline(cursor, 20, None)
    assert [row["round"] for row in found["rounds"]] == [3, 2]
    assert found["rounds"][0]["seconds"] == {
        "claim": 0.0,
        "judge": 5.0,
        "train": 0.0,
        "save": 0.0,
        "publish": 1.0,
        "hold": 0.01,
    }
    assert found["untimed"] == [1, 4], "one is older than the times of steps, one trains now"


def test_the_latest_rounds_up_to_one_are_shown(cursor: duckdb.DuckDBPyConnection) -> None:
    found = timeline(cursor, 1, 2)
    assert [row["round"] for row in found["rounds"]] == [2] and found["untimed"] == []
    assert (found["began"], found["ended"]) == (100.0, 110.0)


def test_without_a_round_there_is_nothing(cursor: duckdb.DuckDBPyConnection) -> None:
    found = timeline(cursor, 20, 0)
    assert found["rounds"] == [] and all(one["spans"] == [] for one in found["lanes"])
