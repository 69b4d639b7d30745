"""The upstream's answer on its way back: whole, streamed or refused, parsed and recorded as it passes.

Invariant: an answer's last byte is sent only after its records were accepted, unless the store's settings say
otherwise.
"""

from __future__ import annotations

import contextlib

from weir.proxy.engines.http_client import Answer
from weir.proxy.errors import UpstreamLost
from weir.proxy.http.exchange import Exchange
from weir.proxy.http.sse import EventSplitter, data_of, with_data
from weir.proxy.relay.call import RelayedCall
from weir.proxy.relay.chat_answer import AnswerParser
from weir.proxy.relay.client import arriving
from weir.proxy.relay.levels import Level
from weir.proxy.relay.recorder import RelayRecorder
from weir.proxy.relay.wire import downward
from weir.store.clock import now_us
from weir.store.records.call_record import FinishReason

_SHOWN_BYTES = 2000


class Answering:
    """Passes answers back."""

    def __init__(self, recorder: RelayRecorder, key: str | None) -> None:
        """`key` is the upstream's, which is masked in its errors."""
        self._recorder = recorder
        self._key = key

    async def answer(self, exchange: Exchange, call: RelayedCall, response: Answer) -> None:
        """Pass one answer back and record its call. Raises `UpstreamLost` or `NotRecorded`."""
        exchange.answer_headers |= downward(response.headers)
        form = content_type(response)
        if response.status != 200:
            await self._answer_refusal(exchange, call, response)
        elif form.startswith(b"text/event-stream"):
            await exchange.start(200, form)
            await self._answer_stream(exchange, call, response)
        else:
            given = call.answer.whole(await response.read())
            await self._recorder.finish(call)
            await exchange.answer(200, given, form)

    async def _answer_refusal(self, exchange: Exchange, call: RelayedCall, response: Answer) -> None:
        """Pass back an error of the upstream as it is, with the key masked."""
        body = await response.read()
        if self._key is not None:
            body = body.replace(self._key.encode(), b"***")
        shown = body[:_SHOWN_BYTES].decode(errors="replace")
        await self._recorder.cut((call,), FinishReason.ERROR, f"the upstream answered {response.status}: {shown}")
        await exchange.answer(response.status, body, content_type(response))

    async def _answer_stream(self, exchange: Exchange, call: RelayedCall, response: Answer) -> None:
        """Pass events back as they come; from the one that completes the answer on they wait for the record."""
        splitter, last = EventSplitter(), b""
        async with contextlib.aclosing(arriving(response)) as parts:
            async for part in parts:
                if call.first_token_us is None:
                    call.first_token_us = now_us()
                given = b"".join(_given(call.answer, event) for event in splitter.feed(part))
                if last or call.answer.is_complete or call.answer.failure is not None:
                    last += given
                elif given:
                    await exchange.send(given)
        last += splitter.rest()
        if call.answer.failure is not None:
            await self._recorder.cut((call,), FinishReason.ERROR, call.answer.failure)
        elif call.answer.is_complete or (call.form.level is Level.TEXT and call.answer.unread):
            await self._recorder.finish(call)
        else:
            raise UpstreamLost("the upstream's stream ended without a finish reason")
        await exchange.end(last)


def _given(answer: AnswerParser, event: bytes) -> bytes:
    """The bytes of one event that the agent gets."""
    data = data_of(event)
    if not data:
        return event
    changed = answer.event(data)
    if changed is None:
        return b""
    return event if changed is data else with_data(event, data, changed)


def content_type(response: Answer) -> bytes:
    """The upstream's content type; JSON where it has none."""
    return response.headers.get("content-type", "application/json").encode("latin-1")
