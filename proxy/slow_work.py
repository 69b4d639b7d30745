"""Work whose time grows with a text: short texts where the call is served, long ones in a thread.

A megabyte takes half a second to tokenise, in which nobody else would be served; a thread costs a short text more than
its tokens do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

LONG_CHARACTERS = 32_768

_T = TypeVar("_T")


async def off_the_loop(num_characters: int, work: Callable[[], _T]) -> _T:
    """The result of `work`, done in a thread where it is about a long text. It must not touch what others change."""
    return work() if num_characters < LONG_CHARACTERS else await asyncio.to_thread(work)
