"""What a session's page says beside its calls: its budget, and the end of a candidate's output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from support_stores import Recording, make_call

from weir.store.catalog.budgets import Charge, charge_budgets
from weir.store.catalog.rows import Budget, EvaluationRow
from weir.store.config import StoreConfig
from weir.ui.app import create_app
from weir.ui.config import UiConfig


@pytest.fixture
def store(tmp_path: Path) -> StoreConfig:
    return StoreConfig(root=tmp_path / "store")


@pytest.fixture
def recording(store: StoreConfig) -> Iterator[Recording]:
    recording = Recording(store, "proxy")
    yield recording
    recording.close()


def shown(store: StoreConfig, session_id: str) -> tuple[dict[str, Any], str]:
    """The data of a session's page, and the page."""
    with TestClient(create_app(UiConfig(), store, None), base_url="http://127.0.0.1:8800") as page:
        return page.get(f"/sessions/{session_id}.json").json(), page.get(f"/sessions/{session_id}").text


def test_a_budget_is_shown_with_its_use_and_what_ended_it(store: StoreConfig, recording: Recording) -> None:
    for name, budget in (
        ("limited", Budget(max_calls=2, max_output_tokens=5000, max_seconds=60.0)),
        ("free", Budget()),
    ):
        recording.catalog.register_session(
            name, name, task=None, group_size=1, metadata={}, key_hash=None, budget=budget
        )
        recording.record(make_call(f"call of {name}", [1], [2], session_id=name, group_id=name))
    charge_budgets(recording.catalog, [Charge(session_id="limited", calls=1, output_tokens=1200)])
    charge_budgets(recording.catalog, [Charge(session_id="limited", calls=2)])
    data, page = shown(store, "limited")
    assert data["budget"]["used"] == ["1 of 2 calls", "1,200 of 5,000 output tokens", "60 s"]
    assert "1 of 2 calls, 1,200 of 5,000 output tokens, 60 s" in page and "ended by calls" in page
    data, page = shown(store, "free")
    assert data["budget"] is None and "<dt>budget" not in page


def test_the_end_of_a_candidates_output_is_shown(store: StoreConfig, recording: Recording) -> None:
    call = make_call("call", [1], [2], session_id="s", group_id="s")
    recording.record(call)
    verdict = EvaluationRow(
        call_id="call",
        session_id="s",
        group_id="s",
        round_id=None,
        content_hash="h",
        compiled=False,
        correct=False,
        fault="compile_error",
        raw_reward=0.0,
        result={"message": "it does not compile", "details": {"output_tail": "line 3: <no> such name"}},
        created_us=1,
    )
    recording.catalog.add_evaluations([verdict])
    data, page = shown(store, "s")
    assert data["calls"][0]["verdicts"][0]["log"] == "line 3: <no> such name"
    assert "line 3: &lt;no&gt; such name" in page
