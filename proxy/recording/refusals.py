"""Refused requests, on their way to the store.

Invariants: noting one never waits and never fails; a client in a loop costs one row and one write to the catalog a
second. Between two writes at most `PENDING` different refusals are kept and the rest are counted together. A process
that is killed loses at most the last `WRITE_S`; the log of the proxy has a line for each at once.
"""

from __future__ import annotations

import asyncio
import logging

from sqlalchemy.exc import SQLAlchemyError

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.refusals import REST, Refusal, Times, note_refusals
from weir.store.clock import now_us
from weir.store.errors import StoreError

WRITE_S = 1.0
PENDING = 1_000

logger = logging.getLogger("weir.proxy.recording.refusals")


class Refusals:
    """Collects refusals and writes them aside."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._pending: dict[Refusal, Times] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, refusal: Refusal) -> None:
        """Count a refusal."""
        now = now_us()
        self._add(refusal, Times(num_requests=1, first_us=now, last_us=now))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_soon())

    async def close(self) -> None:
        """Write what waits."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._pending:
            await self._write()

    def _add(self, refusal: Refusal, times: Times) -> None:
        if refusal not in self._pending and len(self._pending) >= PENDING:
            refusal = REST
        known = self._pending.setdefault(refusal, times)
        if known is not times:
            known.add(times)

    async def _write_soon(self) -> None:
        while self._pending:
            await asyncio.sleep(WRITE_S)
            await asyncio.shield(self._write())

    async def _write(self) -> None:
        taken, self._pending = self._pending, {}
        try:
            await asyncio.to_thread(note_refusals, self._catalog, taken)
        except (StoreError, SQLAlchemyError) as error:
            logger.error("refused requests could not be noted and will be again: %s", error)
            for refusal, times in taken.items():
                self._add(refusal, times)
