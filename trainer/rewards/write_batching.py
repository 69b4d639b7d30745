"""Batches catalog writes: rows that arrive during one transaction are written together in the next.

Invariant: `write` returns once its rows are committed, and the event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Row = TypeVar("Row")


class BatchedWriter(Generic[Row]):
    """Writes rows in batches. A failed transaction raises in every caller that waits for one of its rows."""

    def __init__(self, write: Callable[[list[Row]], object]) -> None:
        self._commit = write
        self._pending: list[Row] = []
        self._next: asyncio.Task[None] | None = None  # writes the pending rows after the current transaction
        self._transaction = asyncio.Lock()

    async def write(self, rows: Sequence[Row]) -> None:
        """Write rows; returns once they are committed."""
        if not rows:
            return
        self._pending += rows
        if self._next is None:
            self._next = asyncio.create_task(self._write_pending())
        await asyncio.shield(self._next)

    async def _write_pending(self) -> None:
        async with self._transaction:
            rows, self._pending, self._next = self._pending, [], None
            await asyncio.to_thread(self._commit, rows)
