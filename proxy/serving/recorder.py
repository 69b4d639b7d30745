"""The end of a call at level `tokens`: its tokens are parsed, recorded, remembered for later turns, and counted.

Invariant: whatever ended a call that reached an engine, exactly one record of it is kept, and a finished answer is
given out only after `RecordSink.write` returned.
"""

from __future__ import annotations

from collections.abc import Sequence

from weir.proxy.conversation.call_request import Answer, Finished, TokenLogprob, Usage
from weir.proxy.recording.record_sink import RecordSink
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.rendering.stream_parser import cut_at_stop
from weir.proxy.serving.call import Call, record_of
from weir.proxy.sessions.budgets import Budgets
from weir.proxy.stitching.call_cache import CallCache, known_call
from weir.proxy.stitching.raw_prompts import RawPrompts
from weir.proxy.stitching.response_cache import ResponseCache
from weir.store.records.call_record import FinishReason


class Recorder:
    """Ends calls."""

    def __init__(
        self,
        sink: RecordSink,
        budgets: Budgets,
        rendering: Rendering,
        *,
        memory: CallCache,
        raw_prompts: RawPrompts,
        responses: ResponseCache,
    ) -> None:
        self._sink = sink
        self._budgets = budgets
        self._rendering = rendering
        self._vocabulary = rendering.tokenizer.vocabulary
        self._memory = memory
        self._raw_prompts = raw_prompts
        self._responses = responses

    async def finish(self, call: Call, *, stopped: bool) -> Finished:
        """End a call whose answer is complete, or was `stopped` by a stop string. Raises `NotRecorded`."""
        request, capture = call.request, call.capture
        answer, stop = cut_at_stop(self._parsed(call), request.sampling.stop, request.prefill)
        finish = capture.finish
        assert finish is not None or stopped
        ended_by_length = stop is None and finish is not None and finish.type == "length"
        matched = stop if stop is not None else _single(finish.matched) if finish is not None else None
        reason = FinishReason.LENGTH if ended_by_length else FinishReason.STOP
        call.recorded = True
        record = record_of(call, reason, matched=matched, answer=answer, tokenizer=self._vocabulary)
        await self._sink.write((record,), call.intent)
        if call.allowance is not None:
            await self._budgets.settle(call.allowance, len(capture.ids), was_answered=True)
        if call.raw_prompt is not None:
            known = known_call(record, call.prompt.ids)
            self._raw_prompts.remember(call.raw_prompt, answer.content, known, was_cut=stop is not None)
        elif record.digest:
            self._memory.remember(known_call(record, call.prompt.ids), call.prompt.new_digests)
        self._responses.remember(call.call_id, call.membership.session_id, call.request, answer)
        answer = answer.after(request.prefill)
        return Finished(
            call_id=call.call_id,
            answer=answer,
            reason=reason.value,
            usage=self.usage(call, self._rendering.num_reasoning(capture.ids, answer)),
            logprobs=self.logprobs(call, 0),
            stop_string=stop,
        )

    async def cut(self, calls: Sequence[Call], reason: FinishReason, error: str | None) -> None:
        """End the calls of a request whose answers were not given, but for those that were recorded already."""
        for call in calls:
            if not call.recorded:
                call.recorded = True
                answer = self._parsed(call)
                record = record_of(call, reason, answer=answer, error=error, tokenizer=self._vocabulary)
                await self._sink.write_unfinished((record,), call.intent)
                if call.allowance is not None:
                    await self._budgets.settle(call.allowance, len(call.capture.ids), was_answered=False)

    def usage(self, call: Call, num_reasoning: int = 0) -> Usage:
        """Token counts of a call so far."""
        return Usage(
            prompt_tokens=len(call.prompt.ids) + len(call.forced_ids),
            completion_tokens=len(call.capture.ids),
            cached_tokens=call.capture.cached_tokens,
            reasoning_tokens=num_reasoning,
        )

    def logprobs(self, call: Call, start: int) -> list[TokenLogprob] | None:
        """Text and logprob of the output tokens from `start` on; None where the agent did not ask for them."""
        if not call.request.logprobs:
            return None
        capture = call.capture
        return self._rendering.token_logprobs(capture.ids[start:], capture.logprobs[start:], capture.top[start:])

    def _parsed(self, call: Call) -> Answer:
        request = call.request
        if call.raw_prompt is not None:
            return Answer(content=self._rendering.text(call.answer_ids), reasoning=None, tool_calls=())
        rendering = self._rendering.under(request.template_variables)
        return rendering.parse(call.answer_ids, call.prompt.ids.tail, request.tools, request.parses_tools, call.call_id)


def _single(matched: int | str | list[int] | None) -> int | str | None:
    return matched[0] if isinstance(matched, list) else matched
