"""The way of a request through the proxy: body → prompts → gate and engine → answers → records → last byte.

A request has one call for each answer that it asks for; they run at the same time. Invariant: whatever ends a call
that reached an engine, it goes through the recorder. Not here: wire forms (dialects), prompts and limits (opening.py),
sending again (generation.py), HTTP (exchange.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

from weir.proxy.config import ProxyConfig
from weir.proxy.conversation.call_request import CallRequest, Dialect, Finished
from weir.proxy.conversation.caller import AGENT_HEADERS, Caller, Names, identify
from weir.proxy.errors import CallError, UnknownModel
from weir.proxy.http.exchange import EVENTS, JSON, Exchange, json_keepalive
from weir.proxy.recording.call import Call, now_us
from weir.proxy.recording.recorder import Recorder
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.serving.generate import Generation
from weir.proxy.serving.prepare import Arrived, Opening
from weir.proxy.serving.previous_responses import Responses
from weir.proxy.serving.replay import can_replay, replay
from weir.proxy.serving.retries import Retries
from weir.proxy.serving.stream import Sending, name_version, together
from weir.proxy.stitching.response_cache import continued
from weir.store.records.call_record import FinishReason


class Serving:
    """Serves calls of any dialect at capture level `tokens`."""

    def __init__(
        self,
        *,
        config: ProxyConfig,
        model_names: Sequence[str],
        rendering: Rendering,
        opening: Opening,
        retries: Retries,
        responses: Responses,
        generation: Generation,
        recorder: Recorder,
    ) -> None:
        self.model_names = tuple(model_names)
        self._config = config
        self._rendering = rendering
        self._opening = opening
        self._retries = retries
        self._responses = responses
        self._generation = generation
        self._recorder = recorder

    async def serve(self, exchange: Exchange, dialect: Dialect, names: Names) -> None:
        """Serve one request. Raises `CallError` where nothing was answered yet, and CancelledError from outside."""
        started_us = now_us()
        body = await exchange.body(self._config.max_request_bytes, self._config.body_timeout_s)
        if await self._retries.joined(exchange, body):
            return
        request = await self._request(dialect.parse(body, exchange.headers))
        caller = self._caller(exchange, names, request)
        records = await self._retries.recorded(exchange, dialect.name, body, caller.session_id)
        if records and can_replay(request, records, self._rendering):
            await replay(exchange, dialect, request, records, self._rendering)
            return
        async with self._retries.trying(exchange, body) as this:
            arrived = Arrived(
                dialect=dialect.name, body=body, user_agent=exchange.headers.get("user-agent"), started_us=started_us
            )
            calls = await self._opening.calls(arrived, request, caller)
            this.call_ids = [call.call_id for call in calls]
            await self._answer(exchange, dialect, calls)

    async def _answer(self, exchange: Exchange, dialect: Dialect, calls: list[Call]) -> None:
        """Generate, record and send; whatever ends the calls, they are recorded."""
        exchange.answer_headers["x-weir-call"] = calls[0].call_id
        exchange.answer_headers["x-weir-session"] = calls[0].membership.session_id
        try:
            if calls[0].request.stream:
                exchange.attend(self._config.keepalive_s, lambda: dialect.keepalive, EVENTS)
                await exchange.turn()
                await self._answer_stream(exchange, dialect, calls)
            else:
                were_held = json_keepalive(lambda: exchange.queued or any(call.was_held for call in calls))
                exchange.attend(self._config.keepalive_s, were_held, JSON)
                await exchange.turn()
                await self._answer_whole(exchange, dialect, calls)
        except asyncio.CancelledError:
            await self._recorder.cut(
                calls, FinishReason.DISCONNECT if exchange.client_left else FinishReason.ABORT, None
            )
            raise
        except CallError as error:
            await self._recorder.cut(calls, FinishReason.ERROR, error.message)
            raise
        finally:
            exchange.dismiss()

    def _caller(self, exchange: Exchange, names: Names, request: CallRequest) -> Caller:
        headers = exchange.headers
        agent_ids = request.agent_ids | {name: headers[name] for name in AGENT_HEADERS if name in headers}
        return identify(names, exchange.key_names, headers, request.session_hint, agent_ids)

    async def count_tokens(self, exchange: Exchange, parse: Callable[[bytes, Mapping[str, str]], CallRequest]) -> int:
        """The number of prompt tokens that a request would have, without calling the model."""
        body = await exchange.body(self._config.max_request_bytes, self._config.body_timeout_s)
        request = await self._request(parse(body, exchange.headers))
        return sum(len(prompt.ids) for prompt in await self._opening.prompts(request, None))

    async def _request(self, request: CallRequest) -> CallRequest:
        """A request that this proxy can serve, with the conversation that it goes on from."""
        if request.model not in self.model_names:
            raise UnknownModel(
                f"The model {request.model!r:.200} is not served here; {self.model_names[0]!r} is.", param="model"
            )
        if request.thread is not None and request.thread.previous is not None:
            request = continued(request, await self._responses.history(request.thread.previous))
        return request

    async def _answer_whole(self, exchange: Exchange, dialect: Dialect, calls: list[Call]) -> None:
        finished = await together([self._whole(call) for call in calls])
        first = calls[0]
        name_version(exchange, first)
        await exchange.answer(200, dialect.answer(first.request, first.call_id, first.started_us // 10**6, finished))

    async def _whole(self, call: Call) -> Finished:
        async with contextlib.aclosing(self._generation.run(call)) as pieces:
            async for _ in pieces:
                pass
        return await self._recorder.finish(call, stopped=False)

    async def _answer_stream(self, exchange: Exchange, dialect: Dialect, calls: list[Call]) -> None:
        first = calls[0]
        sending = Sending(
            exchange,
            dialect.stream(first.request, first.call_id, first.started_us // 10**6),
            rendering=self._rendering,
            generation=self._generation,
            recorder=self._recorder,
        )
        await sending.run(calls)
