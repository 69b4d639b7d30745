"""Look-ups of calls that this process did not serve or has evicted: in the logs of all processes, then in Parquet.

A record is in its process's log before the last byte of its answer, so every answer that an agent sends back can be
found. The logs are read from the position of the last look-up on. Invariants: look-ups run in a thread, one at a time,
and only on a cache miss; a look-up that fails is counted and logged, and its request continues as if nothing was found.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from weir.proxy.conversation.digests import Digest
from weir.proxy.metrics import Metrics
from weir.proxy.stitching.call_cache import CallCache, known_call
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.errors import StoreError
from weir.store.log.tail import CallSketch, Found, LogTail, Place, request_hash
from weir.store.query.stored_call import StoredCalls
from weir.store.records.call_record import CallRecord, FinishReason
from weir.store.shared.files import fetch_log

ANSWERED = (FinishReason.STOP, FinishReason.LENGTH)
_PLACES = 65_536  # calls whose position in the log is kept
_AT_ONCE = 256  # calls cached before the event loop may run other tasks

logger = logging.getLogger("weir.proxy.stitching.store_lookup")
_T = TypeVar("_T")


class StoreLookup:
    """Finds recorded calls in the store for one process."""

    def __init__(self, store: StoreConfig, catalog: Catalog, memory: CallCache, metrics: Metrics) -> None:
        self._store = store
        self._catalog = catalog
        self._memory = memory
        self._metrics = metrics
        self._tail = LogTail(store.log_dir, memory.limit_bytes)
        self._stored = StoredCalls(store, catalog)
        self._one = asyncio.Lock()
        self._places: OrderedDict[str, tuple[CallSketch, Place]] = OrderedDict()

    async def learn_ends(self, digests: Sequence[Digest]) -> None:
        """Cache the calls that complete these histories; at least that of the longest one that is found."""
        await self._to_the_end(self._learn_ends(digests))

    async def first_tries(self, dialect: str, body: bytes, session_id: str | None, since_us: int) -> list[CallRecord]:
        """The answered calls of a session (None: of any) with exactly this body, the latest last."""
        records = await self._to_the_end(self._first_tries(dialect, body, session_id, since_us))
        answered = [record for record in records if record.finish in ANSWERED and record.finished_us >= since_us]
        return sorted(answered, key=lambda record: (record.finished_us, record.choice))

    async def group_of(self, session_id: str) -> str | None:
        """The group of a session with a call that any process recorded; None where there is none."""
        return await self._to_the_end(self._group_of(session_id))

    async def call(self, call_id: str) -> CallRecord | None:
        """One recorded call by its id; None where it is not found."""
        return await self._to_the_end(self._call(call_id))

    async def _to_the_end(self, look_up: Coroutine[Any, Any, _T]) -> _T:
        """Run look-ups one at a time, each to its end even if its request is cancelled: log entries come only once."""

        async def alone() -> _T:
            async with self._one:
                return await look_up

        return await asyncio.shield(asyncio.create_task(alone()))

    async def _learn_ends(self, digests: Sequence[Digest]) -> None:
        wanted = set(digests)
        if await self._read_on(lambda sketch: sketch.digest in wanted):
            self._count("parent", "log")
            return
        stored = await self._ask(lambda: self._stored.ending(digests)) or []
        for record in stored:
            self._memory.remember(known_call(record))
        self._count("parent", "store" if stored else "nowhere")

    async def _first_tries(self, dialect: str, body: bytes, session_id: str | None, since_us: int) -> list[CallRecord]:
        hashed = request_hash(dialect, body)

        def is_one(sketch: CallSketch) -> bool:
            same = sketch.request_hash == hashed and sketch.finish in ANSWERED
            return same and session_id in (None, sketch.session_id)

        await self._read_on(is_one)
        places = [place for sketch, place in self._places.values() if is_one(sketch)]
        records = await self._ask(lambda: _read(places)) or []
        where = "log"
        if not records:
            where = "store"
            records = await self._ask(lambda: self._stored.first_tries(dialect, body, since_us, session_id)) or []
        self._count("first_try", where if records else "nowhere")
        return records

    async def _group_of(self, session_id: str) -> str | None:
        await self._read_on(lambda sketch: sketch.session_id == session_id)
        groups = [sketch.group_id for sketch, _ in self._places.values() if sketch.session_id == session_id]
        found = groups[-1] if groups else await self._ask(lambda: self._stored.group_of(session_id))
        self._count("session", "log" if groups else "store" if found else "nowhere")
        return found

    async def _call(self, call_id: str) -> CallRecord | None:
        if call_id not in self._places:
            await self._read_on(lambda sketch: sketch.call_id == call_id)
        places = [self._places[call_id][1]] if call_id in self._places else []
        in_log = await self._ask(lambda: _read(places))
        record = in_log[0] if in_log else await self._ask(lambda: self._stored.read(call_id))
        self._count("call", "log" if in_log else "store" if record else "nowhere")
        return record

    async def _read_on(self, found: Callable[[CallSketch], bool]) -> bool:
        """Cache new log entries, and older ones until `found` accepts one. Returns whether it did."""
        news = await self._ask(lambda: self._read_tail(found)) or []
        any_found = False
        for number, (sketch, place) in enumerate(news, 1):
            self._places[sketch.call_id] = (replace(sketch, prompt_ids=b"", output_ids=b""), place)
            if sketch.digest and sketch.finish in ANSWERED:
                self._memory.remember(known_call(sketch))
            any_found = any_found or found(sketch)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        while len(self._places) > _PLACES:
            self._places.popitem(last=False)
        return any_found

    def _read_tail(self, found: Callable[[CallSketch], bool]) -> list[Found]:
        fetch_log(self._store, self._catalog)
        return self._tail.read(found)

    async def _ask(self, work: Callable[[], _T]) -> _T | None:
        """Run work that reads files or the catalog in a thread; None where it fails."""
        try:
            return await asyncio.to_thread(work)
        except (StoreError, OSError) as error:
            self._metrics.look_ups.labels(what="any", found="failed").inc()
            logger.warning("a look-up in the store failed, and its request continues without: %s", error)
            return None

    def _count(self, what: str, found: str) -> None:
        self._metrics.look_ups.labels(what=what, found=found).inc()


def _read(places: Iterable[Place]) -> list[CallRecord]:
    """The records at these places, without those whose segment was deleted meanwhile."""
    records = []
    for place in places:
        try:
            records.append(place.read())
        except FileNotFoundError:
            continue
    return records
