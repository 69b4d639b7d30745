"""The store as the page sees it: one snapshot for all viewers, renewed in the background while somebody looks.

Invariants: a page is answered from one snapshot, and never waits for a newer one. A snapshot is renewed at most every
`refresh_s` and takes at most a twentieth of one core. An old one is released when its last reader is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import duckdb

from weir.store.config import StoreConfig
from weir.store.errors import StoreError
from weir.store.query.question import asking
from weir.store.query.views import open_views
from weir.ui.data.session_rows import SESSION_ROWS

SHARE_OF_TIME = 20  # a renewal that took one second is followed by the next one after 20 seconds

logger = logging.getLogger("weir.ui.snapshots")

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One view of the store, with the table `session_rows` beside the views of docs/sql.md."""

    connection: duckdb.DuckDBPyConnection
    taken_at: float  # Unix time in seconds
    cost_s: float
    counts: tuple[int, ...]  # of what was recorded: equal counts, nothing new to show


@dataclass(slots=True)
class Change:
    """What viewers are told after a renewal."""

    as_of: float
    calls: int


@dataclass(slots=True, eq=False)
class Snapshots:
    """The newest snapshot, and the threads that read it."""

    store: StoreConfig
    tokenizer: Path | None
    refresh_s: float
    threads: int
    _newest: Snapshot | None = None
    _renewal: asyncio.Task[None] | None = None
    _renewed: asyncio.Event = field(default_factory=asyncio.Event)  # of the next renewal; each has an event of its own
    _readers: ThreadPoolExecutor = field(init=False)
    _askers: ThreadPoolExecutor = field(init=False)
    _running: set[duckdb.DuckDBPyConnection] = field(default_factory=set)
    _under_way: dict[tuple[Snapshot, Hashable], asyncio.Future[Any]] = field(default_factory=dict)
    _renewer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "weir-ui-renew"))
    last_error: str | None = None

    def __post_init__(self) -> None:
        self._readers = ThreadPoolExecutor(self.threads, "weir-ui-read")
        self._askers = ThreadPoolExecutor(self.threads, "weir-ui-ask")

    async def open(self) -> None:
        """Take the first snapshot. Raises StoreError."""
        self._newest = await self._in_thread(self._renewer, self._take)

    async def close(self) -> None:
        """Stop what runs, and release the store."""
        if self._renewal is not None:
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewal
        pools = (self._readers, self._askers, self._renewer)
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for cursor in list(self._running):
            with contextlib.suppress(duckdb.Error):  # it has just ended
                cursor.interrupt()
        for pool in pools:
            pool.shutdown()
        self._newest = None

    @property
    def newest(self) -> Snapshot:
        """The snapshot that pages are answered from."""
        assert self._newest is not None, "open() comes first"
        return self._newest

    async def read(
        self,
        question: Callable[Concatenate[duckdb.DuckDBPyConnection, Given], Answer],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> Answer:
        """Run a question on the newest snapshot, in a thread; raises QueryRefused and QueryStopped as `asking` does.

        Who asks the same while it runs gets the same answer, so what is given must be hashable, and nobody may change
        an answer: viewers of one page all renew it in the same moment.
        """
        asked = (question, args, tuple(sorted(kwargs.items())))
        return await self._ask(self._readers, asked, lambda cursor: question(cursor, *args, **kwargs))

    async def read_as_written(
        self,
        question: Callable[Concatenate[duckdb.DuckDBPyConnection, Given], Answer],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> Answer:
        """As `read`, for SQL that a person wrote: in threads of its own, so that no page waits for a slow question."""
        asked = (question, args, tuple(sorted(kwargs.items())))
        return await self._ask(self._askers, asked, lambda cursor: question(cursor, *args, **kwargs))

    async def _ask(
        self, pool: ThreadPoolExecutor, asked: Hashable, question: Callable[[duckdb.DuckDBPyConnection], Answer]
    ) -> Answer:
        self.renew_if_old()
        snapshot = self.newest

        def ask() -> Answer:
            with (
                snapshot.connection.cursor() as cursor,
                self._interruptible(cursor),
                asking(cursor, self.store.query_timeout_s),
            ):
                return question(cursor)

        under_way: asyncio.Future[Answer] | None = self._under_way.get((snapshot, asked))
        if under_way is None:
            under_way = asyncio.get_running_loop().run_in_executor(pool, ask)
            self._under_way[snapshot, asked] = under_way
            under_way.add_done_callback(functools.partial(self._ended, (snapshot, asked)))
        return await asyncio.shield(under_way)  # one who leaves does not end it for the others

    def _ended(self, asked: tuple[Snapshot, Hashable], answer: asyncio.Future[Any]) -> None:
        del self._under_way[asked]
        if not answer.cancelled():
            answer.exception()  # heard, also where all who asked have left

    @contextlib.contextmanager
    def _interruptible(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        self._running.add(cursor)
        try:
            yield
        finally:
            self._running.discard(cursor)

    async def next_change(
        self, seen: tuple[int, ...], limit_s: float, now: Callable[[], tuple[int, ...]]
    ) -> tuple[int, ...]:
        """What `now` gives, as soon as it is something else than `seen`, or after the limit in any case."""
        deadline = time.monotonic() + limit_s
        while now() == seen and (left := deadline - time.monotonic()) > 0:
            self.renew_if_old()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, self.refresh_s)):
                    await self._renewed.wait()
        return now()

    def renew_if_old(self) -> None:
        """Begin a renewal in the background, if the newest snapshot is old and none is under way."""
        newest = self.newest
        wait_s = max(self.refresh_s, SHARE_OF_TIME * newest.cost_s)
        if time.time() - newest.taken_at >= wait_s and (self._renewal is None or self._renewal.done()):
            self._renewal = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        try:
            self._newest = await self._in_thread(self._renewer, self._take)
            self.last_error = None
        except Exception as error:  # whatever it is: the page says that its view is an old one
            if self.last_error is None:
                unexpected = None if isinstance(error, StoreError | duckdb.Error | OSError) else error
                logger.warning("the page still shows its last view of the store: %s", error, exc_info=unexpected)
            self.last_error = str(error) or type(error).__name__
        renewed, self._renewed = self._renewed, asyncio.Event()
        renewed.set()

    def _take(self) -> Snapshot:
        began = time.thread_time()
        taken_at = time.time()
        connection = open_views(self.store, self.tokenizer)
        connection.execute(f"CREATE TABLE session_rows AS {SESSION_ROWS}")
        counts = connection.execute(_COUNTS).fetchone()
        assert counts is not None
        return Snapshot(connection, taken_at, time.thread_time() - began, counts)

    async def _in_thread(self, pool: ThreadPoolExecutor, function: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(pool, function)


_COUNTS = """
SELECT (SELECT coalesce(sum(num_calls), 0)::BIGINT FROM session_rows), (SELECT count(*) FROM session_rows),
    (SELECT count(*) FROM session_rows WHERE status IN ('done', 'failed')), (SELECT count(*) FROM stored.rewards),
    (SELECT count(*) FROM stored.evaluations), (SELECT count(*) FROM stored.rounds WHERE state = 'committed'),
    (SELECT count(*) FROM stored.rounds), (SELECT count(*) FROM stored.versions WHERE published_us IS NOT NULL)
"""
