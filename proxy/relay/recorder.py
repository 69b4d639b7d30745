"""What becomes of a relayed call that has ended: recorded, remembered for later turns, and counted.

Invariant: whatever ended a call, each of its answers has exactly one record; a finished answer is given out only after
its records were accepted by the log, unless the store's settings say that answers go before records. Not here: what a
record says (relay_recording.py).
"""

from __future__ import annotations

import asyncio
import logging

from weir.proxy.engines.versions import EngineVersions
from weir.proxy.errors import NotRecorded
from weir.proxy.metrics import Metrics
from weir.proxy.recording.call_log import Journal
from weir.proxy.relay.call import RelayedCall, output_tokens, records_of
from weir.proxy.sessions.budgets import Budgets
from weir.proxy.stitching.call_cache import StitchMemory, known_call
from weir.store.errors import StoreError
from weir.store.log.writer import LogWriter
from weir.store.records.call_record import CallRecord, FinishReason

logger = logging.getLogger("weir.proxy.relay.recorder")


class RelayRecorder:
    """Ends relayed calls. It counts what it recorded and what it could not."""

    def __init__(
        self,
        *,
        memory: StitchMemory,
        versions: EngineVersions,
        budgets: Budgets,
        log: LogWriter,
        answer_unrecorded: bool,
        metrics: Metrics,
        journal: Journal,
    ) -> None:
        self.last_version: str | None = None
        self.num_calls = 0
        self.records_lost = 0
        self._memory = memory
        self._versions = versions
        self._budgets = budgets
        self._log = log
        self._answer_unrecorded = answer_unrecorded
        self._metrics = metrics
        self._journal = journal

    async def finish(self, call: RelayedCall) -> None:
        """End a call whose answers are complete. Raises `NotRecorded`."""
        call.answered = True
        records = self._records(call, None, None)
        try:
            written = [asyncio.wrap_future(self._log.append(record)) for record in records]
            await asyncio.shield(written[0] if len(written) == 1 else asyncio.gather(*written))
        except StoreError as error:
            if not self._answer_unrecorded:
                raise NotRecorded(f"the answer could not be recorded, so it is not given: {error}") from error
            self.records_lost += len(records)
            self._metrics.records_lost.inc(len(records))
            logger.error("a call was answered without a record: %s", error)
        for record in records:
            if record.digest:
                self._memory.remember(known_call(record), call.digests)
        await self._settle(call, records, was_answered=True)

    async def cut(self, call: RelayedCall, reason: FinishReason, error: str | None) -> None:
        """End a call before its answer did. A log that refuses is only logged."""
        if call.recorded:
            return
        records = self._records(call, reason, error)
        try:
            for record in records:
                await asyncio.wrap_future(self._log.append(record))
        except StoreError as failure:
            logger.error("an unfinished call was not recorded: %s", failure)
        await self._settle(call, records, was_answered=False)

    async def _settle(self, call: RelayedCall, records: list[CallRecord], *, was_answered: bool) -> None:
        """Charge the session's budget: tokens by their ids, else as the upstream counts them."""
        if call.allowance is not None:
            num_tokens = sum(len(record.output_ids) // 4 for record in records) or output_tokens(call.answer.usage)
            await self._budgets.settle(call.allowance, num_tokens, was_answered=was_answered)

    def _records(self, call: RelayedCall, cut: FinishReason | None, error: str | None) -> list[CallRecord]:
        call.recorded = True
        held_on = call.served is None or self._versions.held_on(call.served)
        records = []
        for record, lowered in records_of(call, held_on=held_on, cut=cut, error=error):
            records.append(record)
            if lowered is not None:
                self._metrics.lowered.labels(reason=lowered.value).inc()
            self._count(record)
        return records

    def _count(self, record: CallRecord) -> None:
        self.num_calls += 1
        self.last_version = record.spans[-1].label if record.spans else self.last_version
        self._journal.ended(record)
