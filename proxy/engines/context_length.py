"""How many tokens a call may have, its prompt and its output: what the model has, and what its engines take.

An engine may be started with less than the model's positions; it says so in its list of models (`max_model_len`).
Invariants: no call waits for engines that were asked once and answered, later asks run beside the calls; an engine that
names no length takes the model's; what was learned holds until all engines have answered again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence

_REMEMBERED_S = 30.0
_PAUSE_S = 1.0  # until engines that did not answer are asked again


class ContextLength:
    """The context length of one router's engines."""

    def __init__(
        self,
        longest: int,
        ask: Callable[[], Awaitable[Sequence[int] | None]],
        *,
        remembered_s: float = _REMEMBERED_S,
    ) -> None:
        """`longest` is the model's own. `ask` returns the lengths that engines name; None unless all answered."""
        self.tokens = longest
        self._longest = longest
        self._ask = ask
        self._remembered_s = remembered_s
        self._have_answered = False
        self._due_s = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def learn(self) -> None:
        """Bring `tokens` up to date."""
        if self._asking is None and time.monotonic() >= self._due_s:
            self._asking = asyncio.create_task(self._learn())
        if not self._have_answered and self._asking is not None:
            await asyncio.shield(self._asking)

    async def close(self) -> None:
        """Stop asking. May be called twice."""
        if self._asking is not None:
            self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking

    async def _learn(self) -> None:
        try:
            lengths = await self._ask()
            self._due_s = time.monotonic() + (_PAUSE_S if lengths is None else self._remembered_s)
            if lengths is not None:
                self._have_answered = True
                self.tokens = min(self._longest, *lengths) if lengths else self._longest
        finally:
            self._asking = None
