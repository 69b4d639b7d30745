"""Turns sequences into a forest of segments, in which a common prefix appears once.

Invariant: the tokens on the path from a root to a segment's end are a prefix of every sequence through it, so a causal
model computes the same hidden states for them as for each sequence alone. Targets, advantages and recorded logprobs
stay with their sequences. The order of the sequences does not change the forest. This module imports no torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weir.store.records.call_record import TokenIds

# A fork that saves fewer tokens than this costs more in calls to the attention kernel than it spares.
MIN_SAVED_TOKENS = 16

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of tokens, after those of its ancestors, that all sequences through it have in common."""

    parent: int | None  # index of the segment before it, which always has a lower index
    start: int  # position of its first token in the sequence
    ids: TokenIds  # (T,), at least one


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixForest:
    """Segments in the order of a row, and the places of each sequence's tokens in that row."""

    segments: list[Segment]
    places: list[Positions]  # of each sequence, the index in the row of each of its tokens

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the row."""
        return sum(len(segment.ids) for segment in self.segments)


def flat_forest(sequences: Sequence[TokenIds]) -> PrefixForest:
    """A forest with one root for each sequence: packing without sharing."""
    ends = np.cumsum([len(ids) for ids in sequences])
    return PrefixForest(
        segments=[Segment(parent=None, start=0, ids=ids) for ids in sequences],
        places=[np.arange(end - len(ids), end) for ids, end in zip(sequences, ends, strict=True)],
    )


def prefix_forest(sequences: Sequence[TokenIds], min_saved: int = MIN_SAVED_TOKENS) -> PrefixForest:
    """The forest of the sequences, forked only where sharing saves at least `min_saved` tokens."""
    order = prefix_order(sequences)
    shared = shared_lengths([sequences[i] for i in order])
    segments: list[Segment] = []
    paths: list[list[int]] = [[] for _ in sequences]
    pending: list[tuple[list[int], int, int | None]] = [(list(range(len(order))), 0, None)]  # members, start, parent
    while pending:
        members, start, parent = pending.pop()
        end, branches = _next_fork([len(sequences[i]) for i in order], shared, members)
        if branches and (len(branches) - 1) * (end - start) < min_saved:
            ended = members[: members.index(branches[0][0])]  # a prefix of all others: it stays with the first branch
            branches[0] = ended + branches[0]
        else:
            segments.append(Segment(parent=parent, start=start, ids=sequences[order[members[-1]]][start:end]))
            parent, start = len(segments) - 1, end
            for member in members:
                paths[order[member]].append(parent)
        pending.extend((branch, start, parent) for branch in reversed(branches))
    return PrefixForest(segments=segments, places=_places(segments, paths, [len(ids) for ids in sequences]))


def prefix_order(sequences: Sequence[TokenIds]) -> list[int]:
    """Indices that sort sequences by their tokens, so that common prefixes are adjacent."""
    keys = [ids.astype(">u4").tobytes() for ids in sequences]
    return sorted(range(len(sequences)), key=keys.__getitem__)


def shared_lengths(ordered: Sequence[TokenIds]) -> list[int]:
    """Length of the prefix that each sequence shares with the one before it; 0 for the first."""
    return [0, *(_common(left, right) for left, right in itertools.pairwise(ordered))][: len(ordered)]


def _common(left: TokenIds, right: TokenIds) -> int:
    length = min(len(left), len(right))
    differs = left[:length] != right[:length]
    return int(differs.argmax()) if differs.any() else length


def _next_fork(lengths: Sequence[int], shared: Sequence[int], members: list[int]) -> tuple[int, list[list[int]]]:
    """The position up to which members share tokens, and the branches behind it; no branches where none fork."""
    going = members
    while len(going) > 1:
        end = min(shared[i] for i in going[1:])
        alive = [i for i in going if lengths[i] > end]
        branches: list[list[int]] = []
        for i in alive:
            if branches and shared[i] > end:
                branches[-1].append(i)
            else:
                branches.append([i])
        if len(branches) > 1:
            return end, branches
        if not branches:
            return end, []
        going = branches[0]
    return lengths[going[0]], []


def _places(segments: Sequence[Segment], paths: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[Positions]:
    offsets = np.cumsum([0, *(len(segment.ids) for segment in segments)])
    rows = [np.arange(offsets[i], offsets[i + 1]) for i in range(len(segments))]
    return [np.concatenate([rows[i] for i in path])[:length] for path, length in zip(paths, lengths, strict=True)]
