"""A recorded answer, given again: what the agent was told the first time, in its own dialect.

At the relayed levels it is said in the dialect's usual form, not in the upstream's own bytes.

Invariant: the same call, session and version in the headers, the same texts, ids of tool calls and counts. Not here:
whether a request is a retry (retries.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weir.proxy.conversation.call_request import CallRequest, Delta, Dialect, Finished, Usage, total_usage
from weir.proxy.http.exchange import EVENTS, Exchange
from weir.proxy.recording.call import answer_of
from weir.proxy.recording.recorder import token_logprobs
from weir.proxy.rendering.renderer import Rendering
from weir.store.records.call_record import CallRecord, unpack_ids, unpack_logprobs


async def replay(
    exchange: Exchange,
    dialect: Dialect,
    request: CallRequest,
    records: Sequence[CallRecord],
    rendering: Rendering | None,
) -> None:
    """Answer a request with what is recorded of its calls."""
    first = records[0]
    exchange.answer_headers |= {"x-weir-call": first.call_id, "x-weir-session": first.session_id}
    if first.spans:
        exchange.answer_headers["x-weir-version"] = first.spans[-1].label
    finished = [_finished(record, request, rendering) for record in records]
    created_s = first.started_us // 10**6
    if not request.stream:
        await exchange.answer(200, dialect.answer(request, first.call_id, created_s, finished))
        return
    stream = dialect.stream(request, first.call_id, created_s)
    usage = total_usage(finished, request.num_answers)
    parts = [stream.open(dataclasses.replace(usage, completion_tokens=0))]
    parts += [stream.finish(choice, _whole(one), one) for choice, one in enumerate(finished)]
    await exchange.start(200, EVENTS)
    await exchange.end(b"".join([*parts, stream.close(usage)]))


def num_calls(request: CallRequest) -> int:
    """How many calls a request asks for."""
    return request.num_answers * max(1, len(request.raw_prompts))


def can_replay(request: CallRequest, records: Sequence[CallRecord], rendering: Rendering | None) -> bool:
    """Whether the records are all that was asked for; logprobs are told of tokens that the proxy rendered only."""
    return len(records) == num_calls(request) and not (request.logprobs and rendering is None)


def _finished(record: CallRecord, request: CallRequest, rendering: Rendering | None) -> Finished:
    ids = unpack_ids(record.output_ids).tolist()
    logprobs = unpack_logprobs(record.output_logprobs).tolist()
    matched = record.finish_matched
    return Finished(
        call_id=record.call_id,
        answer=answer_of(record),
        reason=record.finish.value,
        usage=Usage(
            prompt_tokens=len(record.prompt_ids) // 4 or record.counted_prompt or 0,
            completion_tokens=len(ids) or record.counted_output or 0,
            cached_tokens=record.cached_tokens,
        ),
        logprobs=token_logprobs(rendering, ids, logprobs) if request.logprobs and rendering is not None else None,
        stop_string=matched if isinstance(matched, str) and matched in request.sampling.stop else None,
    )


def _whole(finished: Finished) -> Delta:
    answer = finished.answer
    return Delta(
        content=answer.content,
        reasoning=answer.reasoning or "",
        tool_calls=answer.tool_calls,
        logprobs=finished.logprobs,
    )
