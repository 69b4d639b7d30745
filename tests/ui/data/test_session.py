"""What a session's page says beside its calls: its budget, verdicts, and answers that are code or cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from support_stores import Recording, make_call

from weir.store.catalog.budgets import Charge, charge_budgets
from weir.store.catalog.rows import Budget, EvaluationRow
from weir.store.config import StoreConfig
from weir.store.records.call_record import CallRecord
from weir.ui.app import create_app
from weir.ui.config import UiConfig
from weir.ui.data.session import DIFF_LINES


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


def turns(*answers: dict[str, Any]) -> list[CallRecord]:
    """The calls of the session s, one for each answer, each of which ends with a question."""
    calls, messages, prompt = [], [{"role": "user", "content": "Write a kernel."}], [1]
    for at, answer in enumerate(answers):
        same: dict[str, Any] = {"session_id": "s", "group_id": "s", "at": 1_780_000_000_000_000 + 1_000_000 * at}
        request, said = json.dumps({"messages": messages}).encode(), json.dumps(answer).encode()
        calls.append(make_call(f"call_{at}", prompt, [2 + at], request=request, answer=said, **same))
        messages, prompt = [*messages, answer, {"role": "user", "content": "Again."}], [*prompt, 2 + at, 1]
    return calls


def judged(call_id: str, message: str) -> EvaluationRow:
    """What the judge of kernels says of a call."""
    return EvaluationRow(
        call_id=call_id,
        session_id="s",
        group_id="s",
        round_id=None,
        content_hash=f"hash of {call_id}",
        compiled=True,
        correct=False,
        fault="output_mismatch",
        raw_reward=0.3,
        result={"fault": "output_mismatch", "fault_message": message, "details": {}},
        created_us=1,
    )


def test_an_answer_that_is_all_code_has_colours_a_difference_and_the_judges_message(
    store: StoreConfig, recording: Recording
) -> None:
    recording.record(*turns(*({"role": "assistant", "content": f"def kernel():\n    return {at}"} for at in (1, 2))))
    recording.catalog.add_evaluations([judged(f"call_{at}", f"{at} of 100 values are wrong") for at in (0, 1)])
    data, page = shown(store, "s")
    assert [call["verdicts"][0]["message"] for call in data["calls"]] == [
        "0 of 100 values are wrong",
        "1 of 100 values are wrong",
    ]
    assert '<pre tabindex="0">1 of 100 values are wrong</pre>' in page
    part = data["calls"][1]["messages"][-1]["parts"][0]
    assert part["code"] == "def kernel():\n    return 2"
    assert [line for line in part["diff"] if line.startswith(("-  ", "+  "))] == ["-    return 1", "+    return 2"]
    assert '<span class="k">def</span>' in page


def test_code_that_is_too_long_for_a_difference_is_shown_whole(store: StoreConfig, recording: Recording) -> None:
    codes = ["\n".join(str(way * at % 110) for at in range(DIFF_LINES + 1)) for way in (1, -1)]
    recording.record(*turns(*({"role": "assistant", "content": f"```text\n{code}\n```"} for code in codes)))
    parts = [call["messages"][-1]["parts"][0] for call in shown(store, "s")[0]["calls"]]
    assert [part["code"] for part in parts] == codes and not any("diff" in part for part in parts)


def test_arguments_of_a_tool_that_python_does_not_read_are_shown_as_they_stand(
    store: StoreConfig, recording: Recording
) -> None:
    number = "9" * 5000
    answer = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "add", "arguments": {"n": 0}}}],
    }
    call = turns(answer)[0]
    said = json.dumps(answer).replace('{"n": 0}', '{"n": ' + number + "}").encode()
    recording.record(make_call("huge", [1], [2], session_id="s", group_id="s", request=call.request, answer=said))
    data, page = shown(store, "s")
    assert number in data["calls"][0]["messages"][-1]["tool_calls"][0]["arguments"] and number in page


def test_a_call_whose_answer_is_nested_too_deep_is_shown_as_it_stands(store: StoreConfig, recording: Recording) -> None:
    nested = '{"role":"assistant","content":' + "[" * 5000 + "]" * 5000 + "}"
    recording.record(make_call("deep", [1], [2], session_id="s", group_id="s", answer=nested.encode()))
    with TestClient(create_app(UiConfig(), store, None), base_url="http://127.0.0.1:8800") as page:
        told = page.get("/calls/deep")
    assert told.status_code == 200 and "[[[[" in told.text
