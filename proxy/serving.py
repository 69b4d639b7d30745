"""The way of a request through the proxy: body → prompts → gate and engine → answers → records → last byte.

A request has one call for each answer that it asks for; they run at the same time. Invariant: whatever ends a call
that reached an engine, it goes through the recorder. Not here: wire forms (dialects), retries (generation.py), HTTP
(exchange.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

from weir.proxy.budgets import Budgets
from weir.proxy.config import ProxyConfig
from weir.proxy.dialect import CallRequest, Dialect, Finished, Message
from weir.proxy.errors import CallError, ContextTooLong, UnknownModel
from weir.proxy.exchange import EVENTS, JSON, Exchange, json_keepalive
from weir.proxy.generation import Generation
from weir.proxy.metrics import Metrics
from weir.proxy.recorder import Recorder
from weir.proxy.recording import Call, now_us
from weir.proxy.rendering import Rendering
from weir.proxy.replaying import num_calls, replay
from weir.proxy.response_memory import continued
from weir.proxy.responses_of_old import Responses
from weir.proxy.retries import IDEMPOTENCY_KEY, Retries
from weir.proxy.sending import Sending, name_version, together
from weir.proxy.sessions import Caller, Names, SessionBook, identify
from weir.proxy.steering import steered
from weir.proxy.stitching import Stitching
from weir.store.ids import new_id
from weir.store.records import FinishReason

_NORMALISED_SHORTER = 4  # how many characters a tokenizer's Unicode normalisation may make one of
AGENT_HEADERS = (
    *("x-session-id", "session_id", "conversation_id", "x-request-id"),
    *("x-stainless-retry-count", IDEMPOTENCY_KEY),
)


class Serving:
    """Serves calls of any dialect at capture level `tokens`."""

    def __init__(
        self,
        *,
        config: ProxyConfig,
        model_names: Sequence[str],
        max_model_len: int,
        rendering: Rendering,
        stitching: Stitching,
        retries: Retries,
        responses: Responses,
        generation: Generation,
        sessions: SessionBook,
        budgets: Budgets,
        recorder: Recorder,
        metrics: Metrics,
    ) -> None:
        self.model_names = tuple(model_names)
        self._config = config
        self._max_model_len = max_model_len
        self._rendering = rendering
        self._stitching = stitching
        self._retries = retries
        self._responses = responses
        self._generation = generation
        self._sessions = sessions
        self._budgets = budgets
        self._recorder = recorder
        self._metrics = metrics

    async def serve(self, exchange: Exchange, dialect: Dialect, names: Names) -> None:
        """Serve one request. Raises `CallError` where nothing was answered yet, and CancelledError from outside."""
        started_us = now_us()
        body = await exchange.body(self._config.max_request_bytes, self._config.body_timeout_s)
        if await self._retries.joined(exchange, body):
            return
        request = await self._request(dialect.parse(body, exchange.headers))
        caller = self._caller(exchange, names, request)
        records = await self._retries.recorded(exchange, dialect, body, caller.session_id)
        if records and len(records) == num_calls(request):
            await replay(exchange, dialect, request, records, self._rendering)
            return
        async with self._retries.trying(exchange, body) as this:
            calls = await self._open(exchange, dialect.name, body, request, caller, started_us)
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

    async def _open(
        self, exchange: Exchange, dialect: str, body: bytes, request: CallRequest, caller: Caller, started_us: int
    ) -> list[Call]:
        """Calls whose prompts, session and limits are known."""
        prompt = await self._stitching.plan(request, caller.session_id)
        self._metrics.stitch.labels(result=prompt.stitch.value).inc()
        steering = steered(self._rendering, request, prompt.ids.tail)
        max_new_tokens = self._token_limit(len(prompt.ids) + len(steering.forced_ids), request.sampling.max_tokens)
        membership = await self._sessions.membership(caller, prompt)
        allowance = await self._budgets.begin(membership, num_calls=request.num_answers)
        call_ids = [new_id("call") for _ in range(request.num_answers)]
        return [
            Call(
                call_id=call_id,
                request_id=call_ids[0] if len(call_ids) > 1 else None,
                choice=choice,
                dialect=dialect,
                body=body,
                user_agent=exchange.headers.get("user-agent"),
                request=request,
                prompt=prompt,
                forced_ids=steering.forced_ids,
                stop_ids=steering.stop_ids,
                membership=membership,
                agent_ids=caller.agent_ids,
                max_new_tokens=max_new_tokens if allowance is None else allowance.capped(max_new_tokens),
                allowance=allowance,
                started_us=started_us,
            )
            for choice, call_id in enumerate(call_ids)
        ]

    async def count_tokens(self, exchange: Exchange, parse: Callable[[bytes, Mapping[str, str]], CallRequest]) -> int:
        """The number of prompt tokens that a request would have, without calling the model."""
        body = await exchange.body(self._config.max_request_bytes, self._config.body_timeout_s)
        request = await self._request(parse(body, exchange.headers))
        return len((await self._stitching.plan(request, None)).ids)

    async def _request(self, request: CallRequest) -> CallRequest:
        """A request that this proxy can serve, with the conversation that it goes on from."""
        if request.model not in self.model_names:
            raise UnknownModel(
                f"The model {request.model!r:.200} is not served here; {self.model_names[0]!r} is.", param="model"
            )
        if request.thread is not None and request.thread.previous is not None:
            request = continued(request, await self._responses.history(request.thread.previous))
        self._refuse_hopeless(request.messages)
        return request

    def _refuse_hopeless(self, messages: Sequence[Message]) -> None:
        """What cannot fit is not tokenised, which would take seconds from everybody: every token is the longest one."""
        num_characters = sum(len(message.get("content") or "") for message in messages)
        least = num_characters // (self._rendering.tokenizer.longest_token * _NORMALISED_SHORTER)
        if least > self._max_model_len:
            raise ContextTooLong(
                f"This model's maximum context length is {self._max_model_len} tokens; the messages alone have at "
                f"least {least}. Shorten them.",
                param="messages",
            )

    def _token_limit(self, num_prompt: int, asked: int | None) -> int:
        room = self._max_model_len - num_prompt
        if room < 1:
            raise ContextTooLong(
                f"This model's maximum context length is {self._max_model_len} tokens; the messages alone have "
                f"{num_prompt}. Shorten them.",
                param="messages",
            )
        return room if asked is None else min(asked, room)

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
