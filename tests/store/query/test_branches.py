"""Branches as training sequences: whole paths, and masks in which each sampled token is a target exactly once."""

from __future__ import annotations

import collections
import json
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weir.store.config import StoreConfig
from weir.store.log.writer import LogWriter
from weir.store.maintenance.compact import compact
from weir.store.query.sql.views import VIEWS
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import CaptureLevel


@pytest.fixture
def forked(config: StoreConfig, record: Any, make_call: Any) -> StoreConfig:
    """Session s: root a, its turn b, a later and longer fork c of a; session t continues from b."""
    record(
        [
            make_call("a", [1, 2], [3], session_id="s", at=10_000, versions=[(1, "4")]),
            make_call("b", [1, 2, 3, 9], [4, 5], session_id="s", at=30_000, versions=[(1, "4"), (1, "5")]),
            make_call("c", [1, 2, 3, 8, 8], [6, 7], session_id="s", at=50_000, versions=[(2, "5")]),
            make_call("d", [1, 2, 3, 9, 4, 5, 0], [2], session_id="t", at=70_000, versions=[(1, "6")]),
        ]
    )
    return config


def sequences(config: StoreConfig, policy: str) -> dict[str, tuple[list[int], list[int]]]:
    """Ids and mask of each branch, by its leaf."""
    with connect(config) as db:
        rows = db.execute("SELECT leaf_call, ids, mask FROM sequences($1)", [policy]).fetchall()
    return {leaf: (ids, mask) for leaf, ids, mask in rows}


def test_each_policy_gives_a_shared_call_to_one_branch_of_its_session(forked: StoreConfig) -> None:
    b, c = [1, 2, 3, 9, 4, 5], [1, 2, 3, 8, 8, 6, 7]
    d = [*b, 0, 2]
    assert sequences(forked, "first") == {
        "b": (b, [0, 0, 1, 0, 1, 1]),
        "c": (c, [0, 0, 0, 0, 0, 1, 1]),
        "d": (d, [0, 0, 0, 0, 0, 0, 0, 1]),
    }
    assert sequences(forked, "last")["b"][1] == [0, 0, 0, 0, 1, 1]
    assert sequences(forked, "last")["c"][1] == [0, 0, 1, 0, 0, 1, 1]
    assert sequences(forked, "longest") == sequences(forked, "last")
    assert sequences(forked, "every")["d"][1] == [0, 0, 1, 0, 1, 1, 0, 1]


def test_a_policy_that_is_none_is_refused(forked: StoreConfig) -> None:
    with (
        connect(forked) as db,
        pytest.raises(duckdb.Error, match="policy best: expected first, last, longest or every"),
    ):
        db.sql("SELECT mask FROM sequences('best')").fetchall()


def test_the_tokens_of_a_branch_say_what_they_are(forked: StoreConfig) -> None:
    with connect(forked) as db:
        rows = db.sql("FROM branch_tokens('b', 'last') ORDER BY position").fetchall()
    assert rows == [
        (0, 1, "a", False, False, None, None),
        (1, 2, "a", False, False, None, None),
        (2, 3, "a", True, False, -0.5, 4),
        (3, 9, "b", False, False, None, None),
        (4, 4, "b", True, True, -0.5, 4),
        (5, 5, "b", True, True, -1.0, 5),
    ]


def test_branches_count_their_targets(forked: StoreConfig) -> None:
    query = """SELECT leaf_call, call_ids, num_tokens, num_sampled_tokens, num_first_tokens, num_last_tokens,
        finish, trainable, version_min, version_max FROM branches ORDER BY 1"""
    with connect(forked) as db:
        assert db.sql(query).fetchall() == [
            ("b", ["a", "b"], 6, 3, 3, 2, "stop", True, 4, 5),
            ("c", ["a", "c"], 7, 3, 2, 3, "stop", True, 4, 5),
            ("d", ["a", "b", "d"], 8, 4, 1, 1, "stop", True, 4, 6),
        ]


def test_a_parent_that_is_recorded_late_joins_the_sequence(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("b", [1, 2, 3, 9], [4], at=30_000)], writer="one")
    compact(config)
    record([make_call("a", [1, 2], [3], at=10_000)], writer="two")
    for _ in range(2):
        assert sequences(config, "first") == {"b": ([1, 2, 3, 9, 4], [0, 0, 1, 0, 1])}
        compact(config)


CALLS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CALLS)
def test_every_sampled_token_is_a_target_once_and_every_sequence_is_what_its_leaf_was_sent(
    tmp_path_factory: pytest.TempPathFactory, make_call: Any, calls: list[tuple[int, int, int]]
) -> None:
    config = StoreConfig(root=tmp_path_factory.mktemp("trees"), segment_grace_s=0)
    log, ends = LogWriter(config.root, "w", config), [[7]]
    for i, (parent, session, length) in enumerate(calls):
        prompt, output = [*ends[parent % len(ends)], 100 + parent], [1000 + i] * length
        ends.append(prompt + output)
        name = {"session_id": f"s{session}", "at": 1_000_000 * (i + 1)}
        log.append(make_call(f"c{i:02}", prompt, output, **name)).result(120)
    log.close()
    whole = {c.call_id: c for of in load_calls(config, ["s0", "s1", "s2"]).values() for c in of}
    for policy in ("first", "last", "longest"):
        found = sequences(config, policy)
        targets = collections.Counter(
            id for ids, mask in found.values() for id, on in zip(ids, mask, strict=True) if on
        )
        assert targets == collections.Counter({1000 + i: length for i, (_, _, length) in enumerate(calls)})
        for leaf, (ids, _) in found.items():
            assert ids == [*whole[leaf].prompt_ids, *whole[leaf].output_ids]
    compact(config)
    assert sequences(config, "longest") == found


def test_returns_are_discounted(config: StoreConfig) -> None:
    with connect(config) as db:
        assert db.sql("SELECT discounted_return([1, 0, 2], 0.5)").fetchall() == [([1.5, 1.0, 2.0],)]
        assert db.sql("SELECT discounted_return([]::DOUBLE[], 0.5)").fetchall() == [([],)]


CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "List "}, {"type": "text", "text": "files."}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "t1", "function": {"name": "ls"}}]},
        {"role": "tool", "tool_call_id": "t1", "content": "a.py"},
    ]
}
RESPONSES = {
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": "List files."},
        {"type": "function_call", "call_id": "t1", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "t1", "output": "a.py"},
    ],
}
CUSTOM_CALL = {"type": "custom_tool_call", "call_id": "t1", "name": "apply_patch", "input": "+ a"}
CUSTOM = {
    "input": [
        {"role": "user", "content": "Edit a.py."},
        CUSTOM_CALL,
        {"type": "custom_tool_call_output", "call_id": "t1", "output": "Applied."},
    ],
}
ANTHROPIC = {"system": "Be brief.", "messages": [{"role": "user", "content": "List files."}]}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            CHAT,
            [
                ("system", "Be brief.", False),
                ("user", "List files.", False),
                ("assistant", None, False),
                ("tool", "a.py", True),
                ("assistant", "One file.", True),
            ],
        ),
        (
            RESPONSES,
            [
                ("system", "Be brief.", False),
                ("user", "List files.", False),
                ("assistant", None, False),
                ("tool", "a.py", True),
                ("assistant", "One file.", True),
            ],
        ),
        (
            CUSTOM,
            [
                ("user", "Edit a.py.", False),
                ("assistant", None, False),
                ("tool", "Applied.", True),
                ("assistant", "One file.", True),
            ],
        ),
        (
            ANTHROPIC,
            [("system", "Be brief.", True), ("user", "List files.", True), ("assistant", "One file.", True)],
        ),
        ({"prompt": "1, 2,"}, [("user", "1, 2,", True), ("assistant", "One file.", True)]),
        ({"input": "Hi"}, [("user", "Hi", True), ("assistant", "One file.", True)]),
    ],
)
def test_messages_of_every_dialect_are_rows_and_the_new_ones_are_marked(
    config: StoreConfig, record: Any, make_call: Any, body: dict[str, Any], told: list[tuple[Any, ...]]
) -> None:
    record([make_call("a", [1], [2], request=json.dumps(body).encode(), text="One file.")])
    with connect(config) as db:
        rows = db.sql("SELECT role, text, is_new, is_answer FROM messages ORDER BY position").fetchall()
        calls = db.sql("SELECT tool_call_id FROM messages WHERE tool_calls IS NOT NULL OR role = 'tool'").fetchall()
    assert [row[:3] for row in rows] == told
    assert [row[3] for row in rows] == [False] * (len(told) - 1) + [True]
    assert set(calls) <= {("t1",), (None,)}


def test_the_call_of_a_custom_tool_has_its_input(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("a", [1], [2], request=json.dumps(CUSTOM).encode(), text="Done.")])
    with connect(config) as db:
        rows = db.sql("SELECT tool_calls, tool_call_id FROM messages WHERE tool_calls IS NOT NULL").fetchall()
    assert [(json.loads(calls), call_id) for calls, call_id in rows] == [([CUSTOM_CALL], "t1")]


ODD_BODIES = [
    b"",
    b"{",
    b"\xff",
    b"null",
    b"5",
    b'{"messages":[5,null,{"role":7}]}',
    b"[" * 2000,
    b'{"tools":"x","input":{}}',
]
ODD_ANSWERS = [
    b"",
    b"null",
    b"[]",
    b'{"content":5}',
    b'{"content":"a\\u0000b"}',
    b'{"content":"\\ud83d"}',
    b'{"tool_calls":"x"}',
]


@pytest.mark.parametrize("view", VIEWS)
def test_no_body_and_no_answer_stops_a_question_about_the_others(
    config: StoreConfig, record: Any, make_call: Any, view: str
) -> None:
    odd = [make_call(f"r{i}", [i], [2], request=body) for i, body in enumerate(ODD_BODIES)]
    odd += [make_call(f"a{i}", [i, 9], [2], answer=answer) for i, answer in enumerate(ODD_ANSWERS)]
    record([*odd, make_call("b", [], [], level=CaptureLevel.TEXT, request=b"{", answer=b""), make_call("z", [7], [8])])
    for _ in range(2):
        with connect(config) as db:
            db.sql(f"SELECT * FROM {view}").fetchall()
            assert db.sql("SELECT text FROM calls WHERE call_id IN ('a0', 'z') ORDER BY call_id").fetchall() == [
                (None,),
                ("answer of z",),
            ]
        compact(config)


def test_what_was_no_json_has_only_its_answer(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("a", [], [], request=b"{", text="no"), make_call("b", [], [], request=b"{", answer=b"")])
    with connect(config) as db:
        assert db.sql("SELECT call_id, role, text FROM messages").fetchall() == [("a", "assistant", "no")]
