"""The prefix forest: it contains every sequence, and shared prefixes once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from weir.trainer.model.ops.prefix_tree import PrefixForest, flat_forest, prefix_forest

SEQUENCES = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=24).map(lambda ids: np.asarray(ids, np.int32)),
    min_size=1,
    max_size=9,
)


def row(forest: PrefixForest) -> np.ndarray:
    return np.concatenate([segment.ids for segment in forest.segments])


def ancestors(forest: PrefixForest, index: int) -> list[int]:
    parent = forest.segments[index].parent
    return [] if parent is None else [*ancestors(forest, parent), parent]


@given(SEQUENCES, st.integers(1, 12))
def test_each_token_of_a_sequence_stands_behind_exactly_the_tokens_before_it(
    sequences: list[np.ndarray], min_saved: int
) -> None:
    forest = prefix_forest(sequences, min_saved)
    segment_of = np.repeat(range(len(forest.segments)), [len(segment.ids) for segment in forest.segments])
    for ids, places in zip(sequences, forest.places, strict=True):
        assert row(forest)[places].tolist() == ids.tolist()
        last = int(segment_of[places[-1]])
        path = [*ancestors(forest, last), last]
        assert list(dict.fromkeys(segment_of[places].tolist())) == path
        for index in path:
            segment = forest.segments[index]
            assert segment.start == sum(len(forest.segments[i].ids) for i in ancestors(forest, index))
            assert len(segment.ids) > 0


@given(SEQUENCES)
def test_where_every_fork_pays_a_token_behind_equal_tokens_is_there_once(sequences: list[np.ndarray]) -> None:
    prefixes = {tuple(ids[:end].tolist()) for ids in sequences for end in range(1, len(ids) + 1)}
    assert prefix_forest(sequences, 1).num_tokens == len(prefixes)


@given(SEQUENCES, st.integers(1, 12), st.randoms(use_true_random=False))
def test_the_forest_does_not_depend_on_the_order_and_is_never_larger_than_the_sequences(
    sequences: list[np.ndarray], min_saved: int, order: object
) -> None:
    shuffled = list(sequences)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    found, other = prefix_forest(sequences, min_saved), prefix_forest(shuffled, min_saved)
    assert row(found).tolist() == row(other).tolist()
    assert found.num_tokens <= flat_forest(sequences).num_tokens == sum(map(len, sequences))


def test_a_fork_that_saves_little_is_not_made() -> None:
    sequences = [np.asarray([1, 2, 3, last], np.int32) for last in (7, 8, 9)]
    assert [len(segment.ids) for segment in prefix_forest(sequences, 6).segments] == [3, 1, 1, 1]
    assert [len(segment.ids) for segment in prefix_forest(sequences, 7).segments] == [4, 4, 4]


def test_turns_of_one_session_are_one_segment() -> None:
    turns = [np.arange(length, dtype=np.int32) for length in (20, 50, 90)]
    (segment,) = prefix_forest(turns).segments
    assert len(segment.ids) == 90
