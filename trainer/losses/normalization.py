"""Loss normalisation: the weight of each token in the loss of an optimiser step, by name.

Invariant: weights depend on lengths and groups only and are known before the first batch, so that micro-batches, their
order and the number of ranks change nothing. The loss of a step is the sum over its tokens of weight times loss. Each
function takes the lengths and group ids of the step's sequences and returns one weight for each sequence's tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

LossMean = Callable[[Sequence[int], Sequence[str], float], list[float]]


def token_mean(lengths: Sequence[int], groups: Sequence[str], constant: float) -> list[float]:
    """DAPO (arXiv 2503.14476): every token of the step has the same weight."""
    del groups, constant
    return [1 / sum(lengths)] * len(lengths)


def sequence_mean(lengths: Sequence[int], groups: Sequence[str], constant: float) -> list[float]:
    """GRPO (arXiv 2402.03300): the mean over sequences of the mean over their tokens."""
    del groups, constant
    return [1 / (len(lengths) * length) for length in lengths]


def sequence_sum(lengths: Sequence[int], groups: Sequence[str], constant: float) -> list[float]:
    """REINFORCE: the mean over sequences of the sum over their tokens."""
    del groups, constant
    return [1 / len(lengths)] * len(lengths)


def constant_mean(lengths: Sequence[int], groups: Sequence[str], constant: float) -> list[float]:
    """Dr.GRPO (arXiv 2503.20783): the sum over a sequence divided by a constant, its longest possible length."""
    del groups
    return [1 / (len(lengths) * constant)] * len(lengths)


def group_mean(lengths: Sequence[int], groups: Sequence[str], constant: float) -> list[float]:
    """The mean over groups of the mean over their tokens."""
    del constant
    tokens: Counter[str] = Counter()
    for length, group in zip(lengths, groups, strict=True):
        tokens[group] += length
    return [1 / (len(tokens) * tokens[group]) for group in groups]


LOSS_MEANS: dict[str, LossMean] = {
    "token": token_mean,
    "sequence": sequence_mean,
    "sequence_sum": sequence_sum,
    "constant": constant_mean,
    "group": group_mean,
}
