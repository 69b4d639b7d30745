"""An episode: what a sample or an online session asks of the engines, turn by turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Episode:
    """A session's turns.

    Attributes:
        inputs: New prompt tokens of each turn, shape (turns,).
        outputs: Generated tokens of each turn, at least 1, shape (turns,).
        thinks_s: Seconds of the agent before each turn; the first is 0, shape (turns,).
        arrival_s: When it begins, for sessions that come by themselves.
    """

    inputs: tuple[float, ...]
    outputs: tuple[float, ...]
    thinks_s: tuple[float, ...]
    arrival_s: float = 0.0

    @property
    def tokens(self) -> float:
        """All tokens of its context at the end."""
        return sum(self.inputs) + sum(self.outputs)


Episodes = Iterator[Episode]
