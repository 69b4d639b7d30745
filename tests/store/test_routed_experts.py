"""The experts of a mixture's tokens: one or two bytes each, from the end of the parent's tokens on, put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.store.query.stored_call import StoredCalls
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import CallRecord, pack_experts

# Of each token of the longest branch, the experts of two layers.
ROWS = np.arange(16).reshape(8, 2)


def routed(start: int, stop: int, *, more: int = 0) -> dict[str, Any]:
    rows = ROWS[start:stop] + more
    return {"routed_from": start, "routed_choices": 2, "routed_experts": pack_experts(rows)}


@pytest.fixture(params=["log", "files"])
def stored(request: pytest.FixtureRequest, config: StoreConfig, record: Any, make_call: Any) -> StoreConfig:
    """Three turns of a session; a fork of it by experts above 255; a call that continues one without experts."""
    calls = [
        make_call("a", [1, 2, 3], [4], at=1_000_000, **routed(0, 3)),
        make_call("b", [1, 2, 3, 4, 5], [6], at=2_000_000, **routed(3, 5)),
        make_call("c", [1, 2, 3, 4, 5, 6, 7], [8, 9], at=3_000_000, **routed(5, 8)),
        make_call("wide", [1, 2, 3, 4, 9], [6], at=4_000_000, **routed(3, 5, more=300)),
        make_call("without", [1, 2, 3, 4, 8], [6], at=5_000_000),
        make_call("broken", [1, 2, 3, 4, 8, 6, 7], [8], at=6_000_000, **routed(5, 7)),
        make_call("whole", [1, 2, 3, 4, 8, 6, 8], [8], at=7_000_000, **routed(0, 7)),
    ]
    record(calls, writer="one")
    if request.param == "files":
        compact(config)
    return config


def experts(store: StoreConfig) -> dict[str, list[list[int]] | None]:
    (calls,) = load_calls(store, ["s"], routed_experts=True).values()
    return {call.call_id: None if call.routed_experts is None else call.routed_experts.tolist() for call in calls}


def test_a_calls_experts_begin_with_those_of_the_calls_that_it_continues(stored: StoreConfig) -> None:
    fork = [*ROWS[:3].tolist(), *(ROWS[3:5] + 300).tolist()]
    assert experts(stored) == {
        "a": ROWS[:3].tolist(),
        "b": ROWS[:5].tolist(),
        "c": ROWS.tolist(),
        "wide": fork,
        "without": None,
        "broken": None,
        "whole": ROWS[:7].tolist(),
    }
    assert all(call.routed_experts is None for call in load_calls(stored, ["s"])["s"])


def test_sql_and_a_look_up_give_what_was_recorded(stored: StoreConfig) -> None:
    with connect(stored) as db:
        rows = db.sql("SELECT routed_from, routed_choices, routed_experts FROM calls ORDER BY started_us").fetchall()
    assert rows[1] == (3, 2, bytes(range(6, 10)))
    assert rows[3] == (3, 2, (ROWS[3:5] + 300).astype("<u2").tobytes())
    assert rows[4] == (None, None, None)
    catalog = Catalog.open(stored)
    found = StoredCalls(stored, catalog).read("b")
    catalog.close()
    assert found is None or (found.routed_from, found.routed_experts) == (3, bytes(range(6, 10)))


def test_an_import_has_the_experts_of_the_export(stored: StoreConfig, tmp_path: Path) -> None:
    def weir(*words: str | Path) -> None:
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output

    other = StoreConfig(root=tmp_path / "other")
    weir("export", "--root", stored.root, "--output", tmp_path / "lines.jsonl", "--policy", "every")
    weir("import", "--root", other.root, tmp_path / "lines.jsonl")
    assert experts(other) == experts(stored)


@pytest.mark.parametrize("wrong", [{"routed_choices": 3}, {"routed_choices": None}, {"routed_from": 2}])
def test_experts_that_do_not_fit_the_tokens_are_refused(make_call: Any, wrong: dict[str, Any]) -> None:
    def make(**changes: Any) -> CallRecord:
        made: CallRecord = make_call("b", [1, 2, 3, 4, 5], [6], **routed(3, 5) | changes)
        return made

    assert make().routed_from == 3
    with pytest.raises(ValueError, match="bytes of experts"):
        make(**wrong)
