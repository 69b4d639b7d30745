"""Advantages by name: the returns of one group, compared with each other.

Invariant: a group is a group by its id, never by position in a batch; nothing crosses groups, and groups may be of any
size. A group without spread (a single value, or all alike) has no signal: its advantages are exactly zero.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import groupby

from weir.trainer.credit import CREDITS
from weir.trainer.hooks import Group

EPS = 1e-6
SPREAD_BOUND = 1e-9

Advantage = Callable[[Sequence[float], Sequence[float]], list[float]]


def has_spread(values: Sequence[float]) -> bool:
    """Whether the values differ by more than rounding."""
    return len(values) > 1 and max(values) - min(values) > SPREAD_BOUND


def grpo(returns: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """GRPO (arXiv 2402.03300): (R - mean) / (std + eps) over the baseline's values, std unbiased."""
    if not has_spread(baseline):
        return [0.0] * len(returns)
    mean, std = statistics.fmean(baseline), statistics.stdev(baseline)
    return [(value - mean) / (std + EPS) for value in returns]


ADVANTAGES: dict[str, Advantage] = {"grpo": grpo}


def group_advantages(group: Group, *, credit: str, advantage: str, gamma: float) -> dict[str, float] | None:
    """The advantage of each call of a group, by the named credit and advantage; None where the group has no signal."""
    returns: list[float] = []
    baseline: list[float] = []
    for _, session in groupby(group.items, key=lambda item: item.session_id):
        credited = CREDITS[credit](list(session), gamma)
        returns.extend(credited.returns)
        baseline.extend(credited.baseline)
    if not has_spread(baseline):
        return None
    values = ADVANTAGES[advantage](returns, baseline)
    return {item.call_id: value for item, value in zip(group.items, values, strict=True)}
