"""From how far a candidate came, and how fast it is, to a number. Pure.

A reward is a function of an `Outcome`. It can be chosen by name (`REWARDS`) or by import path, `module:function`
(`find_reward`); whichever is chosen, a fault that is ours has none and a broken rule earns 0. A speedup that is not
measured on a device, or not confirmed (`speed.py`), is None, and earns nothing.
"""

from __future__ import annotations

import enum
import pkgutil
from collections.abc import Callable
from typing import NamedTuple

from weir.kernel_eval.errors import UnknownReward
from weir.kernel_eval.protocol import Fault


class Stage(enum.IntEnum):
    """How far a candidate came. Each stage includes those before it."""

    NOTHING = 0  # it does not import, or has no entry point
    LOADED = 1  # it imports and has its entry point
    ANSWERED = 2  # its answer has the right shape and dtype
    CORRECT = 3  # it is right on every trial


class Outcome(NamedTuple):
    """What a reward is made of. `speedup`: the reference's time over the candidate's; None where it is not known.

    `timed`: it was measured on a device; what was measured and does not count is no better than no speedup.
    """

    stage: Stage
    speedup: float | None = None
    timed: bool = False


Reward = Callable[[Outcome], float]

MAX_BONUS = 2.0
MAX_UNKNOWN = 0.1  # whatever the reward: of a candidate that compiles and was not run
_BY_STAGE = {Stage.NOTHING: 0.0, Stage.LOADED: 0.1, Stage.ANSWERED: 0.3, Stage.CORRECT: 1.0}


def by_stage(outcome: Outcome) -> float:
    """0 · 0.1 has its entry point · 0.3 answers wrongly · 1 correct; speed earns nothing."""
    return _BY_STAGE[outcome.stage]


def speedup(outcome: Outcome) -> float:
    """0 · 0.1 has its entry point · 0.3 correct, and min(max(speedup - 1, 0), 2) on top."""
    if outcome.stage is not Stage.CORRECT:
        return 0.1 if outcome.stage >= Stage.LOADED else 0.0
    return 0.3 + min(max((outcome.speedup or 0.0) - 1.0, 0.0), MAX_BONUS)


def default(outcome: Outcome) -> float:
    """`speedup` where a speed was measured, `by_stage` elsewhere."""
    return speedup(outcome) if outcome.timed or outcome.speedup is not None else by_stage(outcome)


REWARDS: dict[str, Reward] = {"default": default, "by_stage": by_stage, "speedup": speedup}


def find_reward(name: str) -> Reward:
    """A reward by name or import path. Raises `UnknownReward`."""
    if name in REWARDS:
        return REWARDS[name]
    try:
        if ":" not in name:
            raise ValueError("it has no colon")
        reward: Reward = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownReward(
            f"kernel_eval.reward is {name!r}, which is neither of {sorted(REWARDS)} nor an import path ({error}); "
            "write it as module:function"
        ) from error
    return reward


def raw_reward(outcome: Outcome, fault: Fault | None, reward: Reward = default) -> float | None:
    """The reward of an evaluation: None where the fault is ours, 0 where a rule was broken, else as `reward` says."""
    if fault is not None and fault.ours:
        return None
    if fault is not None and fault.policy:
        return 0.0
    earned = reward(outcome)
    return min(earned, MAX_UNKNOWN) if fault is Fault.NOT_RUN else earned
