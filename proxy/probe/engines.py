"""The probe of engine control: aborting a call in flight, pausing and continuing, each tried once for real.

Requests go to the engines directly, as in publishing. A pause of mode `retract` followed at once by continue delays
calls in flight by moments and loses nothing; the aborted call is one made here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import msgspec

from weir.proxy.engines.capture import decode_chunk
from weir.proxy.errors import UpstreamLost, UpstreamNotTaken
from weir.proxy.http.sse import EventSplitter, data_of
from weir.proxy.relay.client import RelayUpstream, arriving
from weir.store.records.ids import new_id

_encode = msgspec.json.Encoder().encode
_JSON = {"content-type": "application/json"}
_LENGTHS = (2048, 512, 128)  # tokens: more than an engine samples before the abort reaches it, if its context allows


async def missing_for_abort(upstream: RelayUpstream) -> str | None:
    """Why a call in flight cannot be aborted; None where it was."""
    for length in _LENGTHS:
        status, missing = await _aborted(upstream, length)
        if status != 400:
            break
    return missing


async def _aborted(upstream: RelayUpstream, length: int) -> tuple[int | None, str | None]:
    """Start a call for `length` tokens and abort it; its status (None: no answer), and why it was not aborted."""
    rid = new_id("rid")
    params = {"max_new_tokens": length, "temperature": 1.0, "ignore_eos": True}
    body = {"rid": rid, "input_ids": [1, 2, 3], "sampling_params": params, "return_logprob": True, "stream": True}
    try:
        async with upstream.relay("POST", "/generate", _encode(body), _JSON) as response:
            if response.status != 200:
                return response.status, f"/generate answered {response.status}"
            finish = None
            async with contextlib.aclosing(_chunks(arriving(response))) as chunks:
                async for number, data in _numbered(chunks):
                    if number == 0 and (refused := await _everywhere(upstream, "/abort_request", {"rid": rid})):
                        return response.status, refused
                    finish = decode_chunk(data).meta_info.finish_reason or finish
    except (UpstreamNotTaken, UpstreamLost, msgspec.DecodeError) as error:
        return None, str(error)
    aborted = finish is not None and finish.type == "abort"
    return response.status, None if aborted else f"the call ended with {finish!r} all the same"


async def missing_for_pause(upstream: RelayUpstream) -> str | None:
    """Why the engines cannot be paused and continued; None where they were."""
    try:
        return await _everywhere(upstream, "/pause_generation", {"mode": "retract"})
    finally:
        await asyncio.shield(_everywhere(upstream, "/continue_generation", {}))


async def _everywhere(upstream: RelayUpstream, path: str, body: dict[str, str]) -> str | None:
    """POST to every engine; describes the first refusal, None where all accepted."""
    for url in await upstream.engine_urls():
        status = await upstream.post(f"{url}{path}", _encode(body))
        if status != 200:
            return f"POST {url}{path} answered {status if status is not None else 'nothing'}"
    return None


async def _chunks(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    splitter = EventSplitter()
    async for part in parts:
        for event in splitter.feed(part):
            data = data_of(event)
            if data and data != b"[DONE]":
                yield data


async def _numbered(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[tuple[int, bytes], None]:
    number = 0
    async for chunk in chunks:
        yield number, chunk
        number += 1
