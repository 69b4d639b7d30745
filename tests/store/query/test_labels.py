"""Labels of calls, by what was recorded, in one session of a coding agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weir.store.config import StoreConfig
from weir.store.reader import connect
from weir.store.records.call_record import Stitch

TOOLS = [{"type": "function", "function": {"name": "bash"}}]
SYSTEM = {"role": "system", "content": "You write code."}


def chat(*messages: str, system: str | None = None, tools: Any = TOOLS) -> dict[str, Any]:
    """The request fields of a call with these messages, of user and assistant alternately."""
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": text} for i, text in enumerate(messages)]
    history = [SYSTEM if system is None else {"role": "system", "content": system}, *said]
    body = {"model": "small", "messages": history} | ({"tools": tools} if tools else {})
    return {"request": json.dumps(body).encode(), "num_messages": len(history)}


@pytest.fixture
def labels(config: StoreConfig, record: Any, make_call: Any) -> dict[str, tuple[Any, ...]]:
    """Label, rule and linked call of each call."""
    asks = "Please summarize the conversation so far"
    calls = [
        make_call("first", [1], [2], at=10_000, **chat("Fix it")),
        make_call(
            "title", [50], [51], at=11_000, **chat("Fix it", system="You make titles. Give a title.", tools=None)
        ),
        make_call("again", [1], [3], at=40_000, **chat("Fix it")),
        make_call("turn", [1, 2, 4], [5], at=60_000, **chat("Fix it", "ls", "a.py")),
        make_call("helper", [60], [61], at=80_000, **chat("Look for it", system="You search.")),
        make_call(
            "deeper", [60, 61, 62], [63], at=100_000, **chat("Look for it", "grep", "none", system="You search.")
        ),
        make_call("summary", [1, 2, 4, 5, 6], [7], at=120_000, **chat("Fix it", "ls", "a.py", "cat", asks)),
        make_call("short", [1, 8], [9], at=140_000, **chat("So far: a.py")),
        make_call(
            "seen", [1, 80], [9], at=160_000, stitch=Stitch.COMPACTED, stitch_call="turn", **chat("So far: b.py")
        ),
        make_call("other", [1], [2], at=10_000, session_id="t", **chat("Give it a title", tools=None)),
    ]
    record(calls)
    with connect(config) as db:
        rows = db.sql("SELECT call_id, label, rule, linked_call FROM calls LEFT JOIN labels USING (call_id)").fetchall()
    return {row[0]: row[1:] for row in rows}


def test_every_call_is_labelled_by_a_rule_that_is_named(labels: dict[str, tuple[Any, ...]]) -> None:
    assert labels == {
        "first": (None, None, None),
        "title": ("title", "asks_for_title", None),
        "again": ("retry", "same_prompt", "first"),
        "turn": (None, None, None),
        "helper": ("sub_agent", "other_instructions", "turn"),
        "deeper": (None, None, None),
        "summary": ("summary", "asks_for_summary", None),
        "short": ("compaction", "shorter_history", "summary"),
        "seen": ("compaction", "stitched_as_compacted", "turn"),
        "other": (None, None, None),
    }


def test_the_choices_of_one_request_are_no_retries_and_asking_again_is(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    record(
        [
            make_call(f"{asked}-{choice}", [1], [answer], at=at, request_id=asked, choice=choice, **chat("Fix it"))
            for asked, at in (("r1", 10_000), ("r2", 40_000))
            for choice, answer in enumerate((2, 3, 2))
        ]
    )
    with connect(config) as db:
        assert sorted(db.sql("SELECT call_id, rule FROM labels").fetchall()) == [
            (f"r2-{choice}", "same_prompt") for choice in range(3)
        ]
