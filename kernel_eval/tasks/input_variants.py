"""The inputs of the calls of one evaluation: as the task makes them, and changed so that what is hard-coded shows.

A scale of a half or of minus one keeps what a task may rely on (zeros, symmetry, triangles, ranges that hold 0) and
breaks what a candidate may not: that inputs are positive, that a seed or a statistic is known. Where sizes can be
changed in the task's module, one call gets a smaller input. The first call gets inputs as they are: it is the one
whose launches are run again. Pure; no torch.
"""

from __future__ import annotations

import random
from typing import NamedTuple


class Variant(NamedTuple):
    """How the inputs of one call differ from what `get_inputs` returns."""

    scale: float = 1.0
    smaller: bool = False


PLAIN = Variant()
_SCALED = (Variant(-1.0), PLAIN, Variant(0.5))


def plan(num_calls: int, relaxed: frozenset[str], seed: int) -> list[Variant]:
    """One variant for each call: the first plain, the others in an order that nobody can foresee."""
    others = [PLAIN if "varied_inputs" in relaxed else _SCALED[i % len(_SCALED)] for i in range(num_calls - 1)]
    if num_calls > 2 and "varied_shapes" not in relaxed:
        others[1] = Variant(smaller=True)
    random.Random(seed).shuffle(others)
    return [PLAIN, *others][:num_calls]
