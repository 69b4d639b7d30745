"""Which rewards count for which call: from the rewards of a session's calls to one return for each call.

Invariant: pure functions of one session's items in the order of their start; registered by name in `CREDITS`. How
returns are compared within a group is `advantages.py`.
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
    baseline: list[float]  # what the session contributes to its group's mean and spread


Credit = Callable[[Sequence["GroupItem"], float], SessionReturns]


def turn_returns(items: Sequence[GroupItem], gamma: float) -> SessionReturns:
    """Kevin's credit (arXiv 2507.11948): every call is a sample, worth its own reward and the later ones, discounted.

    Later means later in the session, also across a rewritten history: an agent that restarts its prompt for every turn
    still improves on what it did before.
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

    A branch enters the baseline once, however many calls it has. There is no discount: `gamma` is not used.
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
