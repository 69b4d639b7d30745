"""The names of the sandbox levels, weakest first. `containment.py` describes each."""

from __future__ import annotations

import enum


class SandboxLevel(enum.StrEnum):
    """A level of containment; each includes the limits of the levels before it."""

    RLIMITS = "rlimits"
    LANDLOCK = "landlock"
    BUBBLEWRAP = "bubblewrap"

    @property
    def rank(self) -> int:
        """The strength of the level; 0 is the weakest."""
        return list(SandboxLevel).index(self)
