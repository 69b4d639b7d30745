"""How many tokens a call may have, its prompt and its output: what the model has, and what its engines take.

An engine may be started with less than the model's positions; it says so in its list of models (`max_model_len`).
Invariant: an engine that names no length takes the model's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from weir.proxy.engines.learned import REMEMBERED_S, Learned


class ContextLength:
    """The context length of one router's engines."""

    def __init__(
        self,
        longest: int,
        ask: Callable[[], Awaitable[Sequence[int] | None]],
        *,
        remembered_s: float = REMEMBERED_S,
    ) -> None:
        """`longest` is the model's own. `ask` returns the lengths that engines name; None unless all answered."""
        self._longest = longest
        self._lengths = Learned(ask, remembered_s=remembered_s)

    @property
    def tokens(self) -> int:
        """As far as it is known."""
        return min(self._longest, *(self._lengths.value or ()), self._longest)

    async def learn(self) -> None:
        """Bring `tokens` up to date, beside the calls once engines have answered."""
        await self._lengths.learn()

    async def close(self) -> None:
        """Stop asking. May be called twice."""
        await self._lengths.close()
