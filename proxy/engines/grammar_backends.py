"""What the engines keep grammars with: `grammar_backend` in the /server_info of each, as SGLang names it.

Asked when a call needs to know, and remembered for a while, because engines come and go. Invariant: an engine that does
not say is not counted, so that what is refused is refused for what an engine said.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

NONE = "none"  # an engine that keeps no grammars
LLGUIDANCE = "llguidance"  # takes Lark grammars as `ebnf`
_REMEMBERED_S = 30.0


class GrammarBackends:
    """The backends of one router's engines."""

    def __init__(self, ask: Callable[[], Awaitable[frozenset[str]]]) -> None:
        """`ask` returns the backends that engines name."""
        self._ask = ask
        self._asking = asyncio.Lock()
        self._found: frozenset[str] = frozenset()
        self._until_s = 0.0

    async def now(self) -> frozenset[str]:
        """The backends of the engines that say; empty where none does."""
        async with self._asking:
            if time.monotonic() >= self._until_s:
                self._found = await self._ask()
                self._until_s = time.monotonic() + _REMEMBERED_S if self._found else 0.0
            return self._found
