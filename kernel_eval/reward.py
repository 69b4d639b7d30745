"""Reward functions: from the stage that a candidate reached, and its speedup, to a number. Pure.

A reward is a function of an `Outcome`, chosen by name (`REWARDS`) or by import path, `module:function`. In any case, a
fault of the server gives no reward and a broken rule gives 0. Where torch may compute beside kernels and rewards are
scaled, what a correct candidate earns beyond a wrong answer is multiplied by the part of the work that kernels did. A
speedup that was not measured on a device, or was not confirmed, is None, and earns nothing.
"""

from __future__ import annotations

import enum
import functools
import math
import pkgutil
from collections.abc import Callable
from typing import NamedTuple

from weir.kernel_eval.errors import UnknownReward
from weir.kernel_eval.protocol import Fault


class Stage(enum.IntEnum):
    """The stage that a candidate reached. Each includes those before it."""

    NOTHING = 0  # it does not import, or has no entry point
    LOADED = 1  # it imports and has its entry point
    ANSWERED = 2  # its answer has the right shape and dtype
    CORRECT = 3  # it is right on every trial


class Outcome(NamedTuple):
    """The input of a reward function.

    speedup: the reference's time divided by the candidate's; None if unknown. timed: it was measured on a device; a
    measurement that does not count is worth no more than a speedup of 1. kernel_share: the part of the task's work that
    kernels did, by which `raw_reward` scales; 1 unless the server scales.
    """

    stage: Stage
    speedup: float | None = None
    timed: bool = False
    kernel_share: float = 1.0


Reward = Callable[[Outcome], float]

MAX_BONUS = 2.0
MAX_UNKNOWN = 0.1  # for a candidate that compiles and was not run, with any reward function
_BY_STAGE = {Stage.NOTHING: 0.0, Stage.LOADED: 0.1, Stage.ANSWERED: 0.3, Stage.CORRECT: 1.0}


def by_stage(outcome: Outcome) -> float:
    """0 · 0.1: it has its entry point · 0.3: its answers are wrong · 1: correct. Speed earns nothing."""
    return _BY_STAGE[outcome.stage]


def speedup(outcome: Outcome) -> float:
    """0 · 0.1: it has its entry point · 0.3 + min(max(speedup - 1, 0), 2): correct."""
    if outcome.stage is not Stage.CORRECT:
        return 0.1 if outcome.stage >= Stage.LOADED else 0.0
    return 0.3 + min(max((outcome.speedup or 0.0) - 1.0, 0.0), MAX_BONUS)


def log_speedup(outcome: Outcome) -> float:
    """0 · 0.1: it has its entry point · 0.3 + min(max(log2(speedup), 0), 2): correct."""
    if outcome.stage is not Stage.CORRECT:
        return speedup(outcome)
    return 0.3 + min(math.log2(max(outcome.speedup or 0.0, 1.0)), MAX_BONUS)


def faster_than(bound: float, outcome: Outcome) -> float:
    """fast_p (KernelBench, arXiv 2502.10517): 0 · 0.1: it has its entry point · 0.3: correct · 1: speedup > p too."""
    if outcome.stage is Stage.CORRECT and outcome.speedup is not None and outcome.speedup > bound:
        return 1.0
    return 0.3 if outcome.stage is Stage.CORRECT else speedup(outcome)


def default(outcome: Outcome) -> float:
    """`speedup` if a speed was measured, else `by_stage`."""
    return speedup(outcome) if outcome.timed or outcome.speedup is not None else by_stage(outcome)


REWARDS: dict[str, Reward] = {
    "default": default,
    "by_stage": by_stage,
    "speedup": speedup,
    "log_speedup": log_speedup,
    "fast_1": functools.partial(faster_than, 1.0),
    "fast_1.5": functools.partial(faster_than, 1.5),
    "fast_2": functools.partial(faster_than, 2.0),
}


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
    """The reward of an evaluation: None for a fault of the server, 0 for a broken rule, else the result of `reward`."""
    if fault is not None and fault.ours:
        return None
    if fault is not None and fault.policy:
        return 0.0
    earned = reward(outcome)
    if outcome.stage is Stage.CORRECT and outcome.kernel_share < 1.0:
        wrong = reward(Outcome(Stage.ANSWERED))
        earned = wrong + outcome.kernel_share * max(0.0, earned - wrong)
    return min(earned, MAX_UNKNOWN) if fault is Fault.NOT_RUN else earned
