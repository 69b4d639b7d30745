"""Labels of calls, by what was recorded, in one session of a coding agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weir.store.config import StoreConfig
from weir.store.reader import connect
from weir.store.records.call_record import FinishReason, Stitch

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
        "again": ("replay", "asked_again", "first"),
        "turn": (None, None, None),
        "helper": ("sub_agent", "other_instructions", "turn"),
        "deeper": (None, None, None),
        "summary": ("summary", "asks_for_summary", None),
        "short": ("compaction", "shorter_history", "summary"),
        "seen": ("compaction", "stitched_as_compacted", "turn"),
        "other": (None, None, None),
    }


def test_the_choices_of_one_request_are_no_retries_and_asking_again_is_a_replay(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    record(
        [
            make_call(f"{asked}-{choice}", [1], [answer], at=at, request_id=asked, choice=choice, **chat("Fix it"))
            for asked, at in (("r1", 10_000), ("r2", 40_000))
            for choice, answer in enumerate((2, 3, 2))
        ]
    )
    assert rules_of(config) == {f"r2-{choice}": "asked_again" for choice in range(3)}


def rules_of(config: StoreConfig) -> dict[str, str]:
    """The rule of each labelled call."""
    with connect(config) as db:
        return dict(db.sql("SELECT call_id, rule FROM labels").fetchall())


@pytest.mark.parametrize(
    ("first", "second"),
    [({}, {"retry_count": 1}), ({"finish": FinishReason.ERROR}, {}), ({"finished_us": 50_000}, {})],
)
def test_what_a_client_tries_again_or_that_had_no_answer_yet_is_a_retry(
    config: StoreConfig, record: Any, make_call: Any, first: dict[str, Any], second: dict[str, Any]
) -> None:
    record(
        [
            make_call("a", [1], [2], at=10_000, **first, **chat("Fix it")),
            make_call("b", [1], [3], at=40_000, **second, **chat("Fix it")),
        ]
    )
    assert rules_of(config) == {"b": "same_prompt"}


def test_the_main_line_is_the_root_with_the_most_turns_wherever_it_begins(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    record(
        [
            make_call("name", [50], [51], at=10_000, **chat("Fix it", system="Name this conversation.", tools=None)),
            make_call("first", [1], [2], at=20_000, **chat("Fix it")),
            make_call("turn", [1, 2, 4], [5], at=60_000, **chat("Fix it", "ls", "a.py")),
            make_call("helper", [60], [61], at=80_000, **chat("Look for it", system="You search.")),
        ]
    )
    assert rules_of(config) == {"name": "other_instructions", "helper": "other_instructions"}


def test_of_two_roots_with_as_many_turns_the_one_with_more_tokens_is_the_main_line(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    record(
        [
            make_call("name", [50], [51], at=10_000, **chat("Fix it", system="Name it.", tools=None)),
            make_call("work", [1, 2, 3], [4, 5], at=20_000, **chat("Fix it")),
        ]
    )
    assert rules_of(config) == {"name": "other_instructions"}


def test_examples_at_the_beginning_of_conversations_are_no_compactions(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    fresh = {"stitch": Stitch.NEW_ROOT}
    record(
        [
            make_call("two", [1, 2, 3], [4], at=10_000, **fresh, **chat("one", "uno", "two", "dos", "three")),
            make_call("one", [1, 2], [5], at=40_000, **fresh, **chat("one", "uno", "four")),
        ]
    )
    assert rules_of(config) == {}


def test_a_compaction_after_which_the_history_goes_on_as_before_was_rejected(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    asks = "Please summarize the conversation so far"
    record(
        [
            make_call("first", [1], [2], at=10_000, **chat("Fix it")),
            make_call("turn", [1, 2, 4], [5], at=40_000, **chat("Fix it", "ls", "a.py")),
            make_call("summary", [1, 2, 4, 6], [7], at=80_000, **chat("Fix it", "ls", asks)),
            make_call("short", [1, 8], [9], at=120_000, **chat("So far: a.py")),
            make_call("on", [1, 2, 4, 5, 9], [7], at=160_000, **chat("Fix it", "ls", "a.py", "cat", "text")),
        ]
    )
    assert rules_of(config) == {"summary": "asks_for_summary", "short": "history_kept"}


def test_a_summary_after_which_the_history_goes_on_as_before_was_rejected(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    asks = "Please summarize the conversation so far"
    record(
        [
            make_call("first", [1], [2], at=10_000, **chat("Fix it")),
            make_call("summary", [1, 2, 6], [7], at=40_000, **chat("Fix it", "ls", asks)),
            make_call("turn", [1, 2, 4], [5], at=80_000, **chat("Fix it", "ls", "a.py")),
        ]
    )
    with connect(config) as db:
        assert db.sql("SELECT call_id, label, rule FROM labels").fetchall() == [
            ("summary", "rejected_compaction", "summary_unused")
        ]
