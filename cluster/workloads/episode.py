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
        thinks_s: Seconds of the agent before each turn, shape (turns,).
        arrival_s: When it begins, for sessions that come by themselves.
        after_s: Seconds from its last answer until it is complete.
        prefix: Blocks of its first prompt, by ids that say which other prompts begin alike (`PrefixCache`).
        others: Sessions that run beside it and are complete together with it, as one sample.
    """

    inputs: tuple[float, ...]
    outputs: tuple[float, ...]
    thinks_s: tuple[float, ...]
    arrival_s: float = 0.0
    after_s: float = 0.0
    prefix: tuple[int, ...] = ()
    others: tuple[Episode, ...] = ()

    @property
    def tokens(self) -> float:
        """All tokens of its context at the end, and of the others'."""
        return sum(self.inputs) + sum(self.outputs) + sum(other.tokens for other in self.others)

    @property
    def generated(self) -> float:
        """Its generated tokens, and the others'."""
        return sum(self.outputs) + sum(other.generated for other in self.others)


Episodes = Iterator[Episode]
