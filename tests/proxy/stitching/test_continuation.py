"""Recognising histories, and the cache of calls."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from weir.proxy.conversation.digests import chain
from weir.proxy.conversation.prompt_ids import IdRun, PromptIds
from weir.proxy.stitching.call_cache import CallCache, KnownCall, first_difference
from weir.store.records.call_record import pack_ids, unpack_ids


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
    asked = IdRun(None, ids, None)
    return KnownCall(
        call_id=name,
        session_id=session,
        group_id="g",
        digest=digest,
        num_messages=num_messages,
        asked=asked,
        said=IdRun(asked, ids, None),
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


def test_calls_of_one_conversation_share_the_ids_of_its_turns_and_the_last_one_gives_them_back() -> None:
    memory, ids = CallCache(2**30), PromptIds.of(list(range(1000)))
    for number in range(100):
        last = turned(f"c{number}", ids)
        memory.remember(last, [b"root"])
        ids = last.ids.and_turn([7, number])
    without_ids = turned("none", PromptIds.of([]), []).num_bytes
    assert last.num_bytes > without_ids + 4 * (1000 + 99 * 4)
    merged = last.num_bytes - without_ids  # all runs, of which those that became one are held by earlier calls too
    assert last.num_bytes + 99 * without_ids < memory.num_bytes < last.num_bytes + 99 * without_ids + merged
    assert len(last.said.runs()) < 2 * 32
    other = known("other", b"other")
    memory.limit_bytes = last.num_bytes + other.num_bytes
    memory.remember(other, [b"root"])
    assert (len(memory), memory.num_bytes) == (2, memory.limit_bytes)
    assert memory.find([b"root", b"c99"], None) == (last, 1)
    memory.limit_bytes = 0
    memory.remember(known("alone", b"alone"), [b"root"])
    assert (len(memory), memory.num_bytes) == (1, other.num_bytes)


def test_the_ids_of_a_conversation_are_those_of_its_turns_in_every_form() -> None:
    prompt = PromptIds.of([1, 2, 3])
    call = turned("a", prompt, [])
    ids = call.ids.and_turn([4]).and_forced([5, 6])
    assert unpack_ids(ids.packed).tolist() == [1, 2, 3, 4, 5, 6]
    assert (b"".join(ids.json()), b"".join(ids.json([7, 8]))) == (b"1,2,3,4,5,6", b"1,2,3,4,5,6,7,8")
    assert (len(ids), ids.tail, len(prompt)) == (6, [4, 5, 6], 3)
    longer = turned("b", call.ids.and_turn([4]), [9])
    assert (longer.last_turn, unpack_ids(longer.output).tolist()) == ([4], [9])
    assert unpack_ids(longer.prompt).tolist() == [1, 2, 3, 4]
    assert unpack_ids(longer.exact).tolist() == [1, 2, 3, 4, 9]
    assert b"".join(PromptIds.of([]).and_turn([5]).json()) == b"5"
    for turn in range(100):  # more runs than stay apart
        ids = turned("c", ids, [turn]).ids.and_turn([turn + 1, turn + 2])
    expected = [1, 2, 3, 4, 5, 6, *(number for turn in range(100) for number in (turn, turn + 1, turn + 2))]
    assert unpack_ids(ids.packed).tolist() == json.loads(b"[%b]" % b"".join(ids.json())) == expected
    assert len(ids) == len(expected)


def turned(name: str, prompt: PromptIds, output: Sequence[int] = (5, 6)) -> KnownCall:
    said = IdRun.of(list(output), prompt.run)
    return KnownCall(
        call_id=name,
        session_id="s",
        group_id="g",
        digest=name.encode(),
        num_messages=1,
        asked=prompt.run,
        said=said,
    )


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
