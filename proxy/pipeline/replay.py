"""A recorded answer, given again in the agent's own dialect.

Invariant: the same call, session and version in the headers, the same texts, ids of tool calls and counts as the first
time. At the relayed levels the answer has the dialect's usual form, not the upstream's own bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weir.proxy.conversation.call_request import CallRequest, Delta, Dialect, Finished, Usage, total_usage
from weir.proxy.http.exchange import EVENTS, Exchange
from weir.proxy.recording.call import answer_of
from weir.proxy.rendering.renderer import Rendering
from weir.store.records.call_record import CallRecord, unpack_ids, unpack_logprobs


def call_headers(call_id: str, session_id: str) -> dict[str, str]:
    """The headers of an answer that name its record; SDKs show the call as the request's id."""
    return {"x-weir-call": call_id, "x-weir-session": session_id, "x-request-id": call_id, "request-id": call_id}


async def replay(
    exchange: Exchange,
    dialect: Dialect,
    request: CallRequest,
    records: Sequence[CallRecord],
    rendering: Rendering | None,
) -> None:
    """Answer a request from the records of its calls; `rendering` is None at the relayed levels."""
    first = records[0]
    exchange.answer_headers |= call_headers(first.call_id, first.session_id)
    if first.spans:
        exchange.answer_headers["x-weir-version"] = first.spans[-1].label
    finished = [finished_of(record, request, rendering) for record in records]
    created_s = first.started_us // 10**6
    if not request.stream:
        await exchange.answer(200, dialect.answer(request, first.call_id, created_s, finished))
        return
    stream = dialect.stream(request, first.call_id, created_s)
    usage = total_usage(finished, request.num_answers)
    parts = [stream.open(msgspec.structs.replace(usage, completion_tokens=0))]
    parts += [stream.finish(choice, _whole(one), one) for choice, one in enumerate(finished)]
    await exchange.start(200, EVENTS)
    await exchange.end(b"".join([*parts, stream.close(usage)]))


def can_replay(request: CallRequest, records: Sequence[CallRecord], rendering: Rendering | None) -> bool:
    """Whether the records hold all that was asked for; text of single tokens needs the proxy's own tokenizer."""
    return len(records) == request.num_calls and not (request.logprobs and rendering is None)


def finished_of(record: CallRecord, request: CallRequest, rendering: Rendering | None) -> Finished:
    """The answer of a recorded call, in the form that dialects encode."""
    ids = unpack_ids(record.output_ids).tolist()
    logprobs = unpack_logprobs(record.output_logprobs).tolist()
    matched = record.finish_matched
    return Finished(
        call_id=record.call_id,
        answer=answer_of(record).after(request.prefill),
        reason=record.finish.value,
        usage=Usage(
            prompt_tokens=len(record.prompt_ids) // 4 or record.counted_prompt or 0,
            completion_tokens=len(ids) or record.counted_output or 0,
            cached_tokens=record.cached_tokens,
        ),
        logprobs=(
            rendering.token_logprobs(ids, logprobs, likeliest_of(record))
            if request.logprobs and rendering is not None
            else None
        ),
        stop_string=matched if isinstance(matched, str) and matched in request.sampling.stop else None,
    )


def likeliest_of(record: CallRecord) -> list[list[tuple[int, float]]]:
    """The likeliest tokens of each output position, likeliest first: ids with their logprobs; none where none are."""
    entries = list(zip(unpack_ids(record.top_ids).tolist(), unpack_logprobs(record.top_logprobs).tolist(), strict=True))
    width = len(entries) // max(1, len(record.output_ids) // 4)
    return [entries[i : i + width] for i in range(0, len(entries), width)] if width else []


def _whole(finished: Finished) -> Delta:
    answer = finished.answer
    return Delta(
        content=answer.content,
        reasoning=answer.reasoning or "",
        tool_calls=answer.tool_calls,
        logprobs=finished.logprobs,
    )
