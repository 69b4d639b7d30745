"""Recognising histories, and the cache of calls."""

from typing import Any

import numpy as np
import pytest

from weir.proxy.conversation.digests import chain
from weir.proxy.stitching.call_cache import CallCache, KnownCall, first_difference
from weir.store.records.call_record import pack_ids


def assistant(content: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def called(arguments: str, identifier: str = "c1") -> list[dict[str, Any]]:
    return [{"id": identifier, "type": "function", "function": {"name": "add", "arguments": arguments}}]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (assistant("Hi", reasoning_content="hm"), assistant("Hi")),
        (assistant(" Hi\n"), assistant("Hi")),
        (
            assistant("", tool_calls=called('{"a":1,"b":2}')),
            assistant(None, tool_calls=called('{"b": 2, "a": 1}', "x")),
        ),
        (assistant("Hi", name="coder"), assistant("Hi")),
        (assistant("", tool_calls=called('{"a":1.0,"b":[2.0]}')), assistant("", tool_calls=called('{"a":1,"b":[2]}'))),
        (assistant("", tool_calls=called("")), assistant("", tool_calls=called("{}"))),
        (
            {"role": "tool", "content": "3", "tool_call_id": "a", "name": "add"},
            {"role": "tool", "content": "3", "tool_call_id": "a"},
        ),
        ({"role": "tool", "content": "3", "tool_call_id": "a"}, {"role": "tool", "content": "3", "tool_call_id": "b"}),
    ],
)
def test_what_agents_change_without_meaning_it_does_not_count(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert chain(None, [one]) == chain(None, [other])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (assistant("Hi"), assistant("Hi!")),
        (assistant("Hi"), {"role": "user", "content": "Hi"}),
        (assistant("", tool_calls=called('{"a":1}')), assistant("", tool_calls=called('{"a":2}'))),
        (assistant("", tool_calls=called("{}")), assistant("")),
        (assistant("", tool_calls=called("not json")), assistant("", tool_calls=called("not  json"))),
        ({"role": "user", "content": "a", "name": "Eve"}, {"role": "user", "content": "a", "name": "Bob"}),
        ({"role": "user", "content": "a "}, {"role": "user", "content": "a"}),
    ],
)
def test_what_a_model_would_be_told_differently_counts(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert chain(None, [one]) != chain(None, [other])


def test_an_answer_with_nothing_in_it_may_be_left_out_of_the_history() -> None:
    user = {"role": "user", "content": "Hi"}
    assert chain(None, [user, assistant("", reasoning_content="hm"), user])[-1] == chain(None, [user, user])[-1]


def test_a_chain_grows_by_one_digest_a_message_and_starts_from_the_tools() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "a"}, assistant("b")]
    digests = chain(None, messages)
    assert digests[:2] == chain(None, messages[:1])
    assert len(digests) == 3
    assert chain([{"type": "function"}], messages)[0] != digests[0]


def known(name: str, digest: bytes, *, session: str = "s", num_ids: int = 4, num_messages: int = 1) -> KnownCall:
    ids = pack_ids(list(range(num_ids)))
    return KnownCall(
        call_id=name,
        session_id=session,
        group_id="g",
        digest=digest,
        num_messages=num_messages,
        prompt=ids,
        output=ids,
        json=b"",
        last_turn_start=0,
    )


def test_the_longest_known_history_wins_then_the_own_session_then_the_latest() -> None:
    memory = CallCache(2**20)
    for call in (known("a", b"1"), known("b", b"2"), known("c", b"2", session="t"), known("d", b"2")):
        memory.remember(call, [b"0"])
    found = [
        memory.find(digests, session)
        for digests, session in (
            ([b"0", b"1", b"2"], "t"),
            ([b"0", b"1", b"2"], "s"),
            ([b"0", b"1", b"2"], None),
            ([b"0", b"1", b"9"], None),
            ([b"1", b"9"], None),
        )
    ]
    assert [(hit[0].call_id, hit[1]) if hit else None for hit in found] == [
        ("c", 2),
        ("d", 2),
        ("d", 2),
        ("a", 1),
        None,
    ]


def test_memory_is_bounded_in_bytes_and_forgets_what_was_used_longest_ago() -> None:
    memory = CallCache(10 * 9024)
    for number in range(10):
        memory.remember(known(f"c{number}", str(number).encode(), num_ids=1000), [b"root"])
    assert memory.find([b"root", b"0"], None) is not None
    memory.remember(known("new", b"new", num_ids=1000), [b"root"])
    assert len(memory) == 10
    assert memory.find([b"root", b"0"], None) is not None
    assert memory.find([b"root", b"1"], None) is None


def test_a_rewritten_history_is_compared_with_the_call_that_was_asked_its_longest_beginning() -> None:
    memory = CallCache(2**20)
    memory.remember(known("a", b"end-a"), [b"0", b"1"])
    memory.remember(known("b", b"end-b", session="t"), [b"0", b"1"])
    memory.remember(known("c", b"end-c", num_messages=3), [b"0", b"1", b"2", b"3"])
    asked = [([b"0", b"1", b"2", b"3"], None), ([b"0", b"1", b"2"], None), ([b"0", b"1"], "s"), ([b"0", b"9"], None)]
    found = [memory.find_asked(digests, [9], session) for digests, session in asked]
    assert [call.call_id if call else None for call in found] == ["c", "b", "a", None]


@pytest.mark.parametrize(
    ("ids", "earlier", "expected"),
    [([1, 2, 3], [1, 2], None), ([1, 2], [1, 2], None), ([1, 9, 3], [1, 2], 1), ([1], [1, 2], 1), ([9], [1], 0)],
)
def test_the_first_difference_is_a_position_in_the_prompt(
    ids: list[int], earlier: list[int], expected: int | None
) -> None:
    assert first_difference(ids, np.asarray(earlier, "<i4").tobytes()) == expected
