"""The end of a relayed call: recorded, remembered for later turns, and counted.

Invariant: whatever ended a call, each of its answers has exactly one record; a finished answer is given out only after
`RecordSink.write` returned.
"""

from __future__ import annotations

from collections.abc import Sequence

from weir.proxy.engines.versions import EngineVersions
from weir.proxy.metrics import Metrics
from weir.proxy.recording.record_sink import RecordSink
from weir.proxy.relay.call import RelayedCall, output_tokens, records_of
from weir.proxy.sessions.budgets import Budgets
from weir.proxy.stitching.call_cache import CallCache, known_call
from weir.store.records.call_record import CallRecord, FinishReason


class RelayRecorder:
    """Ends relayed calls."""

    def __init__(
        self, sink: RecordSink, budgets: Budgets, memory: CallCache, versions: EngineVersions, metrics: Metrics
    ) -> None:
        self._sink = sink
        self._budgets = budgets
        self._memory = memory
        self._versions = versions
        self._metrics = metrics

    async def finish(self, call: RelayedCall) -> None:
        """End a call whose answers are complete. Raises `NotRecorded`."""
        call.answered = True
        records = self._records(call, None, None)
        await self._sink.write(records, call.intent)
        for record in records:
            if record.digest:
                self._memory.remember(known_call(record), call.digests)
        await self._settle(call, records, was_answered=True)

    async def cut(self, calls: Sequence[RelayedCall], reason: FinishReason, error: str | None) -> None:
        """End calls before their answers did, but for those that were recorded already."""
        for call in calls:
            if not call.recorded:
                records = self._records(call, reason, error)
                await self._sink.write_unfinished(records, call.intent)
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
        return records
