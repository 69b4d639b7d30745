"""Parenthood: equal to a brute-force oracle, whatever the order in which calls arrive."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.store.records.call_record import TokenIds
from weir.store.records.token_sequence import BLOCK, TokenSequence
from weir.store.records.tree import CallRole, CallTokens, Link, link

RUN = 100  # tokens for each symbol, so that sequences cross the borders of blocks


def ids(symbols: tuple[int, ...], run: int = RUN) -> TokenIds:
    return np.repeat(np.array(symbols, dtype="<i4"), run)


def call(name: str, prompt: TokenIds, output: TokenIds, session: str = "s", at: int = 0, took: int = 5) -> CallTokens:
    return CallTokens(
        call_id=name,
        session_id=session,
        started_us=at,
        finished_us=at + took,
        sequence=TokenSequence(prompt.tobytes() + output.tobytes()),
        prompt_len=len(prompt),
    )


def oracle_parent(child: CallTokens, calls: list[CallTokens]) -> tuple[str | None, int, bool]:
    """The parent by comparing all pairs, as the definition has it."""
    prompt = child.prompt_ids.tolist()
    ends = [(c, c.prompt_ids.tolist() + c.output_ids.tolist()) for c in calls]
    fits = [(c, e) for c, e in ends if 0 < len(e) < len(prompt) and prompt[: len(e)] == e]
    if not fits:
        return None, 0, False
    longest = max(len(e) for _, e in fits)
    best = [c for c, e in fits if len(e) == longest]
    best = [c for c in best if c.session_id == child.session_id] or best
    before = [c for c in best if c.finished_us <= child.started_us]
    if before:
        chosen = sorted(before, key=lambda c: (c.finished_us, c.call_id))[-1]
    else:
        chosen = sorted(best, key=lambda c: (c.finished_us, c.call_id))[0]
    return chosen.call_id, longest, len(best) > 1


@st.composite
def recorded_sets(draw: st.DrawFn) -> list[CallTokens]:
    """Calls that often continue, repeat or resemble each other."""
    calls: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    made: list[CallTokens] = []
    symbols = st.lists(st.integers(0, 2), max_size=3).map(tuple)
    run = draw(st.sampled_from([1, 64, RUN, BLOCK]))
    for i in range(draw(st.integers(1, 12))):
        base: tuple[int, ...] = ()
        if calls and draw(st.booleans()):
            prompt, output = draw(st.sampled_from(calls))
            base = prompt + output if draw(st.booleans()) else prompt
        calls.append((base + draw(symbols), draw(symbols)))
        made.append(
            call(
                f"c{i}",
                ids(calls[-1][0], run),
                ids(calls[-1][1], run),
                session=draw(st.sampled_from(["s", "t"])),
                at=draw(st.integers(0, 20)),
                took=draw(st.integers(0, 10)),
            )
        )
    return made


@settings(max_examples=300, deadline=None)
@given(recorded_sets(), st.randoms())
def test_the_tree_is_the_oracles_in_every_order_of_arrival(calls: list[CallTokens], rng: object) -> None:
    links = link(calls)
    for child in calls:
        found = links[child.call_id]
        assert (found.parent_call, found.prefix_len, found.ambiguous) == oracle_parent(child, calls)
        above = links.get(found.parent_call or "")
        assert found.depth == (0 if above is None else above.depth + 1)
        assert found.root_call == (child.call_id if above is None else above.root_call)
    shuffled = list(calls)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert link(shuffled) == links


def test_turns_of_a_conversation_form_a_path() -> None:
    first = call("a", ids((1,)), ids((2,)), at=0)
    second = call("b", ids((1, 2, 3)), ids((4,)), at=10)
    third = call("c", ids((1, 2, 3, 4, 5)), ids((6,)), at=20)
    links = link([third, first, second])
    assert [(n, links[n].parent_call, links[n].depth, links[n].prefix_len, links[n].role) for n in "abc"] == [
        ("a", None, 0, 0, CallRole.ROOT),
        ("b", "a", 1, 2 * RUN, CallRole.TURN),
        ("c", "b", 2, 4 * RUN, CallRole.TURN),
    ]
    assert {at.root_call for at in links.values()} == {"a"}


def test_retries_and_duplicates_are_siblings_and_labelled() -> None:
    calls = [
        call("a", ids((1,)), ids((2,)), at=0),
        call("b", ids((1, 2, 3)), ids((4,)), at=10),
        call("retry", ids((1, 2, 3)), ids((5,)), at=20),
        call("duplicate", ids((1, 2, 3)), ids((4,)), at=30),
        call("fork", ids((1, 2, 6)), ids((4,)), at=40),
        call("other", ids((1, 2, 3)), ids((4,)), session="t", at=50),
    ]
    links = link(calls)
    assert {name: (at.parent_call, at.role, at.twin_of) for name, at in links.items() if name != "a"} == {
        "b": ("a", CallRole.TURN, None),
        "retry": ("a", CallRole.RETRY, "b"),
        "duplicate": ("a", CallRole.DUPLICATE, "b"),
        "fork": ("a", CallRole.FORK, None),
        "other": ("a", CallRole.TURN, None),
    }


def test_of_equal_ends_the_own_session_counts_then_the_latest_that_finished_before() -> None:
    calls = [
        call("own-early", ids((1,)), ids((2,)), at=0),
        call("own-late", ids((1,)), ids((2,)), at=10),
        call("own-after", ids((1,)), ids((2,)), at=99),
        call("foreign", ids((1,)), ids((2,)), session="t", at=20),
        call("child", ids((1, 2, 3)), ids((4,)), at=30),
        call("stranger", ids((1, 2, 3)), ids((4,)), session="u", at=30),
    ]
    links = link(calls)
    assert (links["child"].parent_call, links["child"].ambiguous) == ("own-late", True)
    assert (links["stranger"].parent_call, links["stranger"].ambiguous) == ("foreign", True)


def test_an_equal_prompt_is_no_parent_and_calls_without_ids_have_no_relatives() -> None:
    none = ids(())
    links = link([call("a", ids((1, 2)), none), call("b", ids((1,)), ids((2,))), call("text", none, none)])
    assert [at.parent_call for at in links.values()] == [None, None, None]
    assert links["text"] == Link(
        parent_call=None, prefix_len=0, depth=0, root_call="text", role=CallRole.ROOT, twin_of=None, ambiguous=False
    )


def test_hashes_are_chained_over_blocks_and_fixed_for_ever() -> None:
    tokens = np.arange(3 * BLOCK + 5, dtype="<i4")
    whole = TokenSequence(tokens.tobytes())
    assert len(whole.hashes) == 4
    assert TokenSequence(tokens[: 2 * BLOCK].tobytes()).hashes == whole.hashes[:3]
    assert whole.end_hash.hex() == "4b8cf0f7f6d32957e024253e1dcedfbb"
    changed = tokens.copy()
    changed[0] = 7
    assert all(a != b for a, b in zip(TokenSequence(changed.tobytes()).hashes[1:], whole.hashes[1:], strict=True))


@given(st.integers(0, 3 * BLOCK), st.integers(0, 3 * BLOCK), st.booleans())
def test_hashes_that_are_taken_over_from_a_prefix_are_those_of_the_tokens(shared: int, own: int, differs: bool) -> None:
    before = np.arange(shared, dtype="<i4")
    data = np.concatenate([before, np.arange(own, dtype="<i4")])
    if differs and shared:
        data[shared // 2] += 1
    alone, after = TokenSequence(data.tobytes()), TokenSequence(data.tobytes(), TokenSequence(before.tobytes()))
    assert (after.hashes, after.end_hash) == (alone.hashes, alone.end_hash)
    assert alone.hash_of(len(alone)) == alone.end_hash
    assert alone.hash_of(shared) == TokenSequence(data[:shared].tobytes()).end_hash
