"""Where the records of calls go, at every capture level: counted, then into the store's log.

Invariant: `write` returns only after the log accepted the records, unless the store's settings say that answers go
before records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

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
        self._call_log = call_log
        self._metrics = metrics
        self._answer_unrecorded = answer_unrecorded

    async def write(self, records: Sequence[CallRecord]) -> None:
        """Write the records of one finished request. Raises `NotRecorded` where its answer must not be given."""
        self._count(records)
        try:
            written = [asyncio.wrap_future(self._log.append(record)) for record in records]
            await asyncio.shield(written[0] if len(written) == 1 else asyncio.gather(*written))
        except StoreError as error:
            if not self._answer_unrecorded:
                raise NotRecorded(f"the answer could not be recorded, so it is not given: {error}") from error
            self.records_lost += len(records)
            self._metrics.records_lost.inc(len(records))
            logger.error("a call was answered without a record: %s", error)

    async def write_unfinished(self, records: Sequence[CallRecord]) -> None:
        """Write the records of calls whose answer was not given. A log that refuses them is only logged."""
        self._count(records)
        try:
            for record in records:
                await asyncio.wrap_future(self._log.append(record))
        except StoreError as error:
            logger.error("an unfinished call was not recorded: %s", error)

    def _count(self, records: Sequence[CallRecord]) -> None:
        for record in records:
            self.num_calls += 1
            if record.spans:
                self.last_version = record.spans[-1].label
            self._call_log.ended(record)
