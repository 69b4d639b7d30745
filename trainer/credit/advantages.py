"""Group-relative advantages by name: the returns of one group, normalised within the group.

Invariant: groups are identified by their id, never by their position in a batch, and may have any size. A group without
spread (one value, or equal values) has no signal: its advantages are exactly zero. `losses/gae.py` has token-level
advantages.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from weir.trainer.credit.returns import CREDITS
from weir.trainer.hooks import Group

EPS = 1e-6
SPREAD_BOUND = 1e-9

Advantage = Callable[[Sequence[float], Sequence[float]], list[float]]


def has_spread(values: Sequence[float]) -> bool:
    """Whether the values differ by more than rounding."""
    return len(values) > 1 and max(values) - min(values) > SPREAD_BOUND


def grpo(returns: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """GRPO (arXiv 2402.03300): (R - mean) / (std + eps), with mean and unbiased std over `baseline`."""
    if not has_spread(baseline):
        return [0.0] * len(returns)
    mean, std = statistics.fmean(baseline), statistics.stdev(baseline)
    return [(value - mean) / (std + EPS) for value in returns]


def dr_grpo(returns: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Dr.GRPO (arXiv 2503.20783): R - mean, without division by the standard deviation."""
    if not has_spread(baseline):
        return [0.0] * len(returns)
    mean = statistics.fmean(baseline)
    return [value - mean for value in returns]


def rloo(returns: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """RLOO (arXiv 2402.14740): R minus the mean of the other n - 1 values, equal to n / (n - 1) (R - mean)."""
    if not has_spread(baseline):
        return [0.0] * len(returns)
    mean, n = statistics.fmean(baseline), len(baseline)
    return [n / (n - 1) * (value - mean) for value in returns]


def turn_rloo(group: Group, returns: Mapping[str, float]) -> dict[str, float] | None:
    """Turn-level RLOO (Dr.Kernel, arXiv 2602.05885): each return minus the mean of the others at the same turn.

    A turn that only one session reached has advantage zero. None where no turn has spread.
    """
    turns: dict[int, list[str]] = {}
    for item in group.items:
        turns.setdefault(item.turn, []).append(item.call_id)
    values = {turn: [returns[call_id] for call_id in call_ids] for turn, call_ids in turns.items()}
    if not any(has_spread(of_turn) for of_turn in values.values()):
        return None
    compared = {turn: rloo(of_turn, of_turn) for turn, of_turn in values.items()}
    pairs = (zip(turns[turn], compared[turn], strict=True) for turn in turns)
    return {call_id: value for turn in pairs for call_id, value in turn}


ADVANTAGES: dict[str, Advantage] = {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}


def credited_returns(group: Group, *, credit: str, gamma: float) -> tuple[dict[str, float], list[float]]:
    """The return of each call of a group, and the values of the group's mean and spread."""
    returns: dict[str, float] = {}
    baseline: list[float] = []
    for _, items in groupby(group.items, key=lambda item: item.session_id):
        session = list(items)
        credited = CREDITS[credit](session, gamma)
        returns |= {item.call_id: value for item, value in zip(session, credited.returns, strict=True)}
        baseline.extend(credited.baseline)
    return returns, baseline


def group_advantages(group: Group, *, credit: str, advantage: str, gamma: float) -> dict[str, float] | None:
    """The advantage of each call of a group, by the named credit and advantage; None for a group without spread."""
    returns, baseline = credited_returns(group, credit=credit, gamma=gamma)
    if advantage == "turn_rloo":
        return turn_rloo(group, returns)
    if not has_spread(baseline):
        return None
    values = ADVANTAGES[advantage](list(returns.values()), baseline)
    return dict(zip(returns, values, strict=True))
