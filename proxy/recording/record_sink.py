"""Where the records of calls go, at every capture level: counted, then into the store's log.

Invariants: `write` returns only after the log accepted the records, unless the store's settings say that answers go
before records. The intent of a call ends when the log has its records, and says so for good where the log refused them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from weir.proxy.errors import NotRecorded
from weir.proxy.metrics import Metrics
from weir.proxy.recording.call_log import CallLog
from weir.store.errors import StoreError
from weir.store.log.writer import LogWriter
from weir.store.records.call_record import CallRecord

logger = logging.getLogger("weir.proxy.recording.record_sink")


class RecordSink:
    """Takes records of calls that ended, and counts those that it wrote and those that it lost."""

    def __init__(self, log: LogWriter, call_log: CallLog, metrics: Metrics, *, answer_unrecorded: bool) -> None:
        """`answer_unrecorded`: an answer whose record the log refuses is given all the same, and counted as lost."""
        self.last_version: str | None = None
        self.num_calls = 0
        self.records_lost = 0
        self._log = log
        self._intents = log.intents
        self._call_log = call_log
        self._metrics = metrics
        self._answer_unrecorded = answer_unrecorded

    async def write(self, records: Sequence[CallRecord], intent: int) -> None:
        """Write the records of one finished call. Raises `NotRecorded` where its answer must not be given."""
        try:
            await self._append(records, intent)
        except StoreError as error:
            if not self._answer_unrecorded:
                raise NotRecorded(f"the answer could not be recorded, so it is not given: {error}") from error
            self.records_lost += len(records)
            self._metrics.records_lost.inc(len(records))
            logger.error("a call was answered without a record: %s", error)

    async def write_unfinished(self, records: Sequence[CallRecord], intent: int) -> None:
        """Write the records of a call whose answer was not given. A log that refuses them is only logged."""
        try:
            await self._append(records, intent)
        except StoreError as error:
            logger.error("an unfinished call was not recorded: %s", error)

    async def _append(self, records: Sequence[CallRecord], intent: int) -> None:
        self._count(records)
        futures = [asyncio.wrap_future(self._log.append(record)) for record in records]
        written: asyncio.Future[Any] = futures[0] if len(futures) == 1 else asyncio.gather(*futures)
        try:
            await asyncio.shield(written)
        except asyncio.CancelledError:  # the records are written all the same
            written.add_done_callback(partial(self._settle, intent))
            raise
        except StoreError:
            self._intents.unrecorded(intent)
            raise
        self._intents.end(intent)

    def _settle(self, intent: int, written: asyncio.Future[Any]) -> None:
        if written.cancelled() or written.exception() is not None:
            self._intents.unrecorded(intent)
        else:
            self._intents.end(intent)

    def _count(self, records: Sequence[CallRecord]) -> None:
        for record in records:
            self.num_calls += 1
            if record.spans:
                self.last_version = record.spans[-1].label
            self._call_log.ended(record)
