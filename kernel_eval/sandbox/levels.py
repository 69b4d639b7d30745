"""The names of the sandbox levels, weakest first. How each contains a candidate is in `sandbox.py`."""

from __future__ import annotations

import enum


class SandboxLevel(enum.StrEnum):
    """How a worker is contained; every level includes the limits of those before it."""

    RLIMITS = "rlimits"
    LANDLOCK = "landlock"
    BUBBLEWRAP = "bubblewrap"

    @property
    def rank(self) -> int:
        """0 is the weakest."""
        return list(SandboxLevel).index(self)
