"""Regular patterns of addresses: which sizes and strides describe them, and whether they overlap."""

from __future__ import annotations

import dataclasses

import numpy as np

from weir.kernel_eval.ir.grid.values import Lanes

_MAX_LEVELS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Lattice:
    """Positions `start + sum(stride * index)`: first the axes that stand for the programs, then those of a tensor."""

    start: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def injective(self) -> bool:
        """Whether it is certain that no two indices give the same position."""
        reach = 0
        for stride, size in sorted((abs(b), a) for a, b in zip(self.sizes, self.strides, strict=True) if a > 1):
            if stride <= reach:
                return False
            reach += stride * (size - 1)
        return True

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest position, and the one after the highest."""
        low = high = self.start
        for size, stride in zip(self.sizes, self.strides, strict=True):
            low += min(0, stride * (size - 1))
            high += max(0, stride * (size - 1))
        return low, high + 1


def progression(starts: Lanes) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Sizes and strides of numbers that count regularly in up to four nested levels; None if they do not."""
    sizes: list[int] = []
    strides: list[int] = []
    while len(starts) > 1:
        if len(sizes) == _MAX_LEVELS:
            return None
        differences = np.diff(starts)
        step = int(differences[0])
        changes = np.flatnonzero(differences != step)
        size = int(changes[0]) + 1 if len(changes) else len(starts)
        if size == 1 or len(starts) % size:
            return None
        rows = starts.reshape(-1, size)
        if not (np.diff(rows, axis=1) == step).all():
            return None
        sizes.insert(0, size)
        strides.insert(0, step)
        starts = rows[:, 0]
    return tuple(sizes), tuple(strides)
