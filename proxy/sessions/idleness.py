"""Finishes registered sessions whose agents went silent (`proxy.idle_finish_s`), in every process over one catalog.

A call's beginning is noted in the catalog before its engine is asked, unless that was done within the last quarter of
the limit; calls in flight, and the ends of calls, are noted every quarter. What a process forgets when it is killed is
at most a quarter old, and any other process, or the next one, finishes its sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection

from cachetools import TTLCache
from sqlalchemy.exc import SQLAlchemyError

from weir.proxy.errors import SessionFinished
from weir.proxy.metrics import Metrics
from weir.proxy.sessions.session_book import REMEMBERED
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.idle_sessions import finish_idle_sessions, touch_sessions
from weir.store.errors import StoreError

logger = logging.getLogger("weir.proxy.sessions.idleness")


class Idleness:
    """Notes activity, and ends what is idle. Without a limit it does nothing."""

    def __init__(self, catalog: Catalog, limit_s: float | None, metrics: Metrics, *, refuse_finished: bool) -> None:
        self._catalog = catalog
        self._limit_s = limit_s
        self._metrics = metrics
        self._refuse_finished = refuse_finished
        self._in_flight: Counter[str] = Counter()
        self._ended: set[str] = set()  # with a call that ended since the last note
        self._noted: TTLCache[str, None] = TTLCache(REMEMBERED, self._period_s, time.monotonic)
        self._task: asyncio.Task[None] | None = None

    @property
    def _period_s(self) -> float:
        return 1.0 if self._limit_s is None else self._limit_s / 4

    @contextlib.asynccontextmanager
    async def calls(self, session_ids: Collection[str]) -> AsyncIterator[None]:
        """Around calls: their sessions are active. Raises `SessionFinished` where one was finished in the meantime."""
        if self._limit_s is None:
            yield
            return
        self._in_flight.update(session_ids)
        try:
            for session_id in session_ids:
                if session_id not in self._noted:
                    await self._note_first(session_id)
            yield
        finally:
            self._in_flight.subtract(session_ids)
            self._in_flight += Counter()  # without what is at zero
            self._ended.update(session_ids)

    async def _note_first(self, session_id: str) -> None:
        running = await asyncio.to_thread(touch_sessions, self._catalog, [session_id])
        if session_id not in running and self._refuse_finished:
            row = await asyncio.to_thread(self._catalog.find_session, session_id)
            if row is not None and row.status is not None:
                raise SessionFinished(
                    f"The session {session_id} was finished, by its agent or after {self._limit_s:g} s without a call "
                    "(proxy.idle_finish_s), so it takes no more calls; register another one."
                )
        self._noted[session_id] = None

    def start(self) -> None:
        """Begin to note and finish sessions."""
        if self._limit_s is not None:
            self._task = asyncio.create_task(self._run(self._limit_s))

    async def close(self) -> None:
        """Stop, and note the sessions whose calls ended last."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            with contextlib.suppress(StoreError, SQLAlchemyError):
                await self._note_all()

    async def _run(self, limit_s: float) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            try:
                await self._note_all()
                finished = await asyncio.to_thread(finish_idle_sessions, self._catalog, limit_s)
            except (StoreError, SQLAlchemyError) as error:
                logger.error("idle sessions could not be finished: %s", error)
                continue
            self._metrics.sessions_idle.inc(len(finished))
            for session_id in finished:
                logger.info("session %s was finished: no call for %g s", session_id, limit_s)

    async def _note_all(self) -> None:
        active = {*self._in_flight, *self._ended}
        self._ended = set()
        try:
            await asyncio.to_thread(touch_sessions, self._catalog, sorted(active))
        except (StoreError, SQLAlchemyError):
            self._ended |= active
            raise
