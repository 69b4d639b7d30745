"""Learning rates over optimiser steps, by name.

Invariant: a pure function of the step's number, which is kept with the optimiser's state, so a resumed run goes on
where it was.
"""

from __future__ import annotations

import math
from typing import Literal

ScheduleName = Literal["constant", "linear", "cosine"]


def learning_rate(
    step: int, lr: float, *, schedule: ScheduleName, warmup_steps: int, total_steps: int | None, min_ratio: float
) -> float:
    """The rate of step 0, 1, …: a linear warm-up to `lr`, then as the schedule has it, down to lr × min_ratio."""
    if step < warmup_steps:
        return lr * (step + 1) / warmup_steps
    if schedule == "constant":
        return lr
    assert total_steps is not None
    done = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0)
    left = 1 - done if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return lr * (min_ratio + (1 - min_ratio) * left)
