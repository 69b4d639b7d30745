"""Keeping what judges say while they go on talking: rows are written in as few transactions as come together.

Invariant: `keep` returns when its rows are written. While one transaction is on its way the next rows gather, and the
loop that hears the judges is never held up by the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Row = TypeVar("Row")


class Keeping(Generic[Row]):
    """Rows on their way into the catalog. A write that fails raises in whoever waits for one of its rows."""

    def __init__(self, write: Callable[[list[Row]], object]) -> None:
        self._write = write
        self._gathered: list[Row] = []
        self._next: asyncio.Task[None] | None = None  # takes what is gathered when its turn comes
        self._turn = asyncio.Lock()

    async def keep(self, rows: Sequence[Row]) -> None:
        """Write rows."""
        if not rows:
            return
        self._gathered += rows
        if self._next is None:
            self._next = asyncio.create_task(self._write_gathered())
        await asyncio.shield(self._next)

    async def _write_gathered(self) -> None:
        async with self._turn:
            rows, self._gathered, self._next = self._gathered, [], None
            await asyncio.to_thread(self._write, rows)
