"""The prefixes of prompts that an engine's KV cache holds, as blocks whose ids name their tokens and all before them.

A prompt's blocks are held from its beginning up to the first that is not. Where running requests need room, the blocks
that were used least recently go first, of one prompt the last ones. Invariant: a block that a running request has takes
no room here, since it is part of that request's context; two that share one count it each.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field

BLOCK = 512
"""Tokens of a block, as in Mooncake's traces."""


@dataclass(slots=True)
class PrefixCache:
    """The blocks under the weights of `epoch`: those of running requests, and idle ones, the oldest first.

    `asked` and `found` count the tokens of the prompts that were looked up, and those of them that were held.
    """

    epoch: int = 0
    asked: float = 0.0
    found: float = 0.0
    _running: Counter[int] = field(default_factory=Counter)
    _idle: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def admit(self, blocks: tuple[int, ...], tokens: float, epoch: int, room: float) -> float:
        """Have a request that brings a prompt of so many tokens; how many of these are held.

        `room` is what the running requests before it leave of the KV cache, in tokens.
        """
        self._now(epoch)
        self._shrink(room)
        held = next((at for at, block in enumerate(blocks) if not self._has(block)), len(blocks))
        for block in blocks:
            self._idle.pop(block, None)
        self._running.update(blocks)
        self._shrink(room - tokens)
        found = min(held * BLOCK, tokens)
        self.asked += tokens
        self.found += found
        return found

    def leave(self, blocks: tuple[int, ...], epoch: int) -> None:
        """A request that was admitted runs no longer; its blocks stay as long as there is room."""
        self._now(epoch)
        self._running.subtract(blocks)
        for block in reversed(blocks):
            if not self._running[block]:
                del self._running[block]
                self._idle[block] = None

    def _has(self, block: int) -> bool:
        return block in self._idle or block in self._running

    def _now(self, epoch: int) -> None:
        if epoch != self.epoch:  # what runs was computed again
            self._idle.clear()
            self.epoch = epoch

    def _shrink(self, room: float) -> None:
        while self._idle and len(self._idle) * BLOCK > room:
            self._idle.popitem(last=False)
