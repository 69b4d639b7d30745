"""What becomes of a call that has ended: its tokens are understood, recorded, remembered for later turns, and counted.

Invariant: whatever ended a call that reached an engine, exactly one record of it is kept, and a finished answer is
given out only after its record was accepted by the log, unless the store's settings say that answers go before
records. Not here: what a record says (recording.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from weir.proxy.conversation.call_request import Answer, Finished, TokenLogprob, Usage
from weir.proxy.errors import NotRecorded
from weir.proxy.metrics import Metrics
from weir.proxy.recording.call import Call, record_of
from weir.proxy.recording.call_log import Journal
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.rendering.stream_parser import cut_at_stop
from weir.proxy.sessions.budgets import Budgets
from weir.proxy.stitching.call_cache import StitchMemory, known_call
from weir.proxy.stitching.raw_prompts import RawPrompts
from weir.proxy.stitching.response_cache import ResponseMemory
from weir.store.errors import StoreError
from weir.store.log.writer import LogWriter
from weir.store.records.call_record import CallRecord, FinishReason

logger = logging.getLogger("weir.proxy.recording.recorder")


class Recorder:
    """Ends calls. It counts what it recorded and what it could not."""

    def __init__(
        self,
        *,
        rendering: Rendering,
        memory: StitchMemory,
        raw_prompts: RawPrompts,
        budgets: Budgets,
        responses: ResponseMemory,
        log: LogWriter,
        answer_unrecorded: bool,
        metrics: Metrics,
        journal: Journal,
    ) -> None:
        self.last_version: str | None = None
        self.num_calls = 0
        self.records_lost = 0
        self._rendering = rendering
        self._vocabulary = rendering.tokenizer.vocabulary
        self._memory = memory
        self._raw_prompts = raw_prompts
        self._budgets = budgets
        self._responses = responses
        self._log = log
        self._answer_unrecorded = answer_unrecorded
        self._metrics = metrics
        self._journal = journal

    async def finish(self, call: Call, *, stopped: bool) -> Finished:
        """End a call whose answer is complete, or was `stopped` by a stop string. Raises `NotRecorded`."""
        request, capture = call.request, call.capture
        answer, stop = cut_at_stop(self._understood(call), request.sampling.stop)
        finish = capture.finish
        assert finish is not None or stopped
        ended_by_length = stop is None and finish is not None and finish.type == "length"
        matched = stop if stop is not None else _single(finish.matched) if finish is not None else None
        reason = FinishReason.LENGTH if ended_by_length else FinishReason.STOP
        record = record_of(call, reason, matched=matched, answer=answer, tokenizer=self._vocabulary)
        await self._record(call, record)
        if call.allowance is not None:
            await self._budgets.settle(call.allowance, len(capture.ids), was_answered=True)
        if call.raw_prompt is not None:
            known = known_call(record, call.prompt.ids)
            self._raw_prompts.remember(call.raw_prompt, answer.content, known, was_cut=stop is not None)
        elif record.digest:
            self._memory.remember(known_call(record, call.prompt.ids), call.prompt.new_digests)
        self._responses.remember(call.call_id, call.request, answer)
        return Finished(
            call_id=call.call_id,
            answer=answer,
            reason=reason.value,
            usage=self.usage(call, self._rendering.num_reasoning(capture.ids, answer)),
            logprobs=self.logprobs(call, 0),
            stop_string=stop,
        )

    async def cut(self, calls: Sequence[Call], reason: FinishReason, error: str | None) -> None:
        """End the calls of a request whose answer was not given. A log that refuses is only logged."""
        for call in calls:
            if not call.recorded:
                await self._cut(call, reason, error)

    def usage(self, call: Call, num_reasoning: int = 0) -> Usage:
        """Token counts of a call so far."""
        return Usage(
            prompt_tokens=len(call.prompt.ids) + len(call.forced_ids),
            completion_tokens=len(call.capture.ids),
            cached_tokens=call.capture.cached_tokens,
            reasoning_tokens=num_reasoning,
        )

    def logprobs(self, call: Call, start: int) -> list[TokenLogprob] | None:
        """Text and logprob of the output tokens from `start` on, where the agent asked; without the end of turn."""
        if not call.request.logprobs:
            return None
        return token_logprobs(self._rendering, call.capture.ids[start:], call.capture.logprobs[start:])

    async def _cut(self, call: Call, reason: FinishReason, error: str | None) -> None:
        call.recorded = True
        record = record_of(call, reason, answer=self._understood(call), error=error, tokenizer=self._vocabulary)
        self._count(call, record)
        try:
            await asyncio.wrap_future(self._log.append(record))
        except StoreError as failure:
            logger.error("an unfinished call was not recorded: %s", failure)
        if call.allowance is not None:
            await self._budgets.settle(call.allowance, len(call.capture.ids), was_answered=False)

    def _understood(self, call: Call) -> Answer:
        request = call.request
        if call.raw_prompt is not None:
            return Answer(content=self._rendering.text(call.said_ids), reasoning=None, tool_calls=())
        return self._rendering.parse(
            call.said_ids, call.prompt.ids.tail, request.tools, request.parses_tools, call.call_id
        )

    async def _record(self, call: Call, record: CallRecord) -> None:
        call.recorded = True
        self._count(call, record)
        try:
            await asyncio.shield(asyncio.wrap_future(self._log.append(record)))
        except StoreError as error:
            if not self._answer_unrecorded:
                raise NotRecorded(f"the answer could not be recorded, so it is not given: {error}") from error
            self.records_lost += 1
            self._metrics.records_lost.inc()
            logger.error("a call was answered without a record: %s", error)

    def _count(self, call: Call, record: CallRecord) -> None:
        self.num_calls += 1
        self.last_version = call.capture.last_version or self.last_version
        self._journal.ended(record)


def token_logprobs(rendering: Rendering, ids: Sequence[int], logprobs: Sequence[float]) -> list[TokenLogprob]:
    """Output tokens as agents are shown them."""
    decode, stop_ids = rendering.tokenizer.decode, rendering.stop_ids
    pairs = zip(ids, logprobs, strict=True)
    return [TokenLogprob(text=decode([n]), logprob=logprob) for n, logprob in pairs if n not in stop_ids]


def _single(matched: int | str | list[int] | None) -> int | str | None:
    return matched[0] if isinstance(matched, list) else matched
