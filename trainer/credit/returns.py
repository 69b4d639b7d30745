"""Credit assignment by name: from the rewards of a session's calls to one return for each call.

Invariant: pure functions of one session's items in the order of their start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weir.trainer.hooks import GroupItem


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReturns:
    """The returns of one session."""

    returns: list[float]  # one for each item
    baseline: list[float]  # the session's values in its group's mean and spread


Credit = Callable[[Sequence["GroupItem"], float], SessionReturns]


def turn_returns(items: Sequence[GroupItem], gamma: float) -> SessionReturns:
    """Kevin's credit (arXiv 2507.11948): a call's return is the sum over later calls k ≥ t of gamma^(k-t) r_k.

    Later calls are those of the session, also across a rewritten history: an agent that restarts its prompt for every
    turn still builds on its earlier turns.
    """
    returns: list[float] = []
    following = 0.0
    for item in reversed(items):
        following = item.reward + gamma * following
        returns.append(following)
    returns.reverse()
    return SessionReturns(returns=returns, baseline=returns)


def trajectory_returns(items: Sequence[GroupItem], gamma: float) -> SessionReturns:
    """A branch's last reward for each of its calls; a call that several branches share gets their mean.

    A branch enters the baseline once, however many calls it has. `gamma` is not used.
    """
    del gamma
    parents = {item.parent_call for item in items}
    branch_rewards = {item.call_id: [] if item.call_id in parents else [item.reward] for item in items}
    for item in reversed(items):  # a child starts after its parent
        if item.parent_call in branch_rewards:
            branch_rewards[item.parent_call].extend(branch_rewards[item.call_id])
    return SessionReturns(
        returns=[sum(branch_rewards[item.call_id]) / len(branch_rewards[item.call_id]) for item in items],
        baseline=[item.reward for item in items if item.call_id not in parents],
    )


CREDITS: dict[str, Credit] = {"turn": turn_returns, "trajectory": trajectory_returns}
