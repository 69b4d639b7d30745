"""From how far a candidate came to a number. Pure; no speed reward, because a time on a CPU says nothing of a GPU."""

from __future__ import annotations

import enum

from weir.kernel_eval.protocol import Fault


class Stage(enum.IntEnum):
    """How far a candidate came. Each stage includes those before it."""

    NOTHING = 0  # it does not import, or has no entry point
    LOADED = 1  # it imports and has its entry point
    ANSWERED = 2  # its answer has the right shape and dtype
    CORRECT = 3  # it is right on every trial


_REWARDS = {Stage.NOTHING: 0.0, Stage.LOADED: 0.1, Stage.ANSWERED: 0.3, Stage.CORRECT: 1.0}


def raw_reward(stage: Stage, fault: Fault | None) -> float | None:
    """The reward of one evaluation: None where the fault is ours, 0 where a rule was broken, else by stage."""
    if fault is not None and fault.ours:
        return None
    if fault is not None and fault.policy:
        return 0.0
    return _REWARDS[stage]
