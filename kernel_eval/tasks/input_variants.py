"""The variants of inputs in one evaluation: as the task makes them, and changed to expose hard-coded answers.

A scale of a half or of minus one keeps properties that a task may rely on (zeros, symmetry, triangles, ranges that
contain 0), and breaks assumptions that a candidate must not make: that inputs are positive, that a seed or a statistic
is known. If sizes can be changed in the task's module, one call gets a smaller input. The first call gets unchanged
inputs, since its launches are replayed. Pure; no torch.
"""

from __future__ import annotations

import random
from typing import NamedTuple


class Variant(NamedTuple):
    """The change of one call's inputs relative to the result of `get_inputs`."""

    scale: float = 1.0
    smaller: bool = False


PLAIN = Variant()
_SCALED = (Variant(-1.0), PLAIN, Variant(0.5))


def plan(num_calls: int, relaxed: frozenset[str], seed: int) -> list[Variant]:
    """One variant for each call: the first plain, the others in an unpredictable order."""
    others = [PLAIN if "varied_inputs" in relaxed else _SCALED[i % len(_SCALED)] for i in range(num_calls - 1)]
    if num_calls > 2 and "varied_shapes" not in relaxed:
        others[1] = Variant(smaller=True)
    random.Random(seed).shuffle(others)
    return [PLAIN, *others][:num_calls]
