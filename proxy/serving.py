"""The way of a call through the proxy: request → prompt → gate and engine → answer → record → last byte.

Invariant: an answer's last byte is sent only after its record was accepted by the log, unless the store's settings say
that answers go before records; whatever ends a call that reached an engine, one record of it is kept. Not here: wire
forms (dialects), retries (generation.py), HTTP (exchange.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from weir.proxy.config import ProxyConfig
from weir.proxy.dialect import Answer, AnswerStream, Dialect, Finished, Message, TokenLogprob, Usage
from weir.proxy.errors import CallError, ContextTooLong, NotRecorded, UnknownModel
from weir.proxy.exchange import EVENTS, JSON, Exchange, json_keepalive
from weir.proxy.generation import Generation
from weir.proxy.metrics import Metrics
from weir.proxy.recording import Call, now_us, record_of
from weir.proxy.rendering import Rendering
from weir.proxy.sessions import Names, SessionBook, identify
from weir.proxy.stitching import StitchMemory, known_call, plan_prompt
from weir.proxy.streaming import StreamedText, cut_at_stop
from weir.store.errors import StoreError
from weir.store.ids import new_id
from weir.store.log import LogWriter
from weir.store.records import CallRecord, FinishReason

_NORMALISED_SHORTER = 4  # how many characters a tokenizer's Unicode normalisation may make one of
AGENT_HEADERS = ("x-session-id", "session_id", "conversation_id", "x-request-id", "x-stainless-retry-count")

logger = logging.getLogger("weir.proxy.serving")


class Serving:
    """Serves calls of any dialect at capture level `tokens`."""

    def __init__(
        self,
        *,
        config: ProxyConfig,
        model_names: Sequence[str],
        max_model_len: int,
        rendering: Rendering,
        generation: Generation,
        sessions: SessionBook,
        log: LogWriter,
        answer_unrecorded: bool,
        metrics: Metrics,
    ) -> None:
        self.model_names = tuple(model_names)
        self.memory = StitchMemory(config.stitch_memory_bytes)
        self.last_version: str | None = None
        self.num_calls = 0
        self.records_lost = 0
        self._config = config
        self._max_model_len = max_model_len
        self._rendering = rendering
        self._generation = generation
        self._sessions = sessions
        self._log = log
        self._answer_unrecorded = answer_unrecorded
        self._metrics = metrics

    async def serve(self, exchange: Exchange, dialect: Dialect, names: Names) -> None:
        """Serve one request. Raises `CallError` where nothing was answered yet, and CancelledError from outside."""
        started_us = now_us()
        body = await exchange.body(self._config.max_request_bytes)
        call = await self._open(exchange, dialect, names, body, started_us)
        exchange.answer_headers["x-weir-call"] = call.call_id
        exchange.answer_headers["x-weir-session"] = call.membership.session_id
        try:
            if call.request.stream:
                exchange.attend(self._config.keepalive_s, lambda: dialect.keepalive, EVENTS)
                await self._answer_stream(exchange, dialect, call)
            else:
                exchange.attend(self._config.keepalive_s, json_keepalive(lambda: call.was_held), JSON)
                await self._answer_whole(exchange, dialect, call)
        except asyncio.CancelledError:
            reason = FinishReason.DISCONNECT if exchange.client_left else FinishReason.ABORT
            await self._record_cut(call, reason, None)
            raise
        except CallError as error:
            await self._record_cut(call, FinishReason.ERROR, error.message)
            raise
        finally:
            exchange.dismiss()

    async def _open(self, exchange: Exchange, dialect: Dialect, names: Names, body: bytes, started_us: int) -> Call:
        """From bytes to a call whose prompt, session and limits are known."""
        headers = exchange.headers
        key_session = await self._sessions.by_key(headers.get("authorization"))
        request = dialect.parse(body)
        if request.model not in self.model_names:
            raise UnknownModel(
                f"The model {request.model!r:.200} is not served here; {self.model_names[0]!r} is.", param="model"
            )
        agent_ids = request.agent_ids | {name: headers[name] for name in AGENT_HEADERS if name in headers}
        caller = identify(names, key_session, headers, request.session_hint, agent_ids)
        self._refuse_hopeless(request.messages)
        prompt = plan_prompt(self._rendering, self.memory, request, caller.session_id)
        self._metrics.stitch.labels(result=prompt.stitch.value).inc()
        return Call(
            call_id=new_id("call"),
            dialect=dialect.name,
            body=body,
            user_agent=headers.get("user-agent"),
            request=request,
            prompt=prompt,
            membership=await self._sessions.membership(caller, prompt),
            agent_ids=caller.agent_ids,
            max_new_tokens=self._token_limit(len(prompt.ids), request.sampling.max_tokens),
            started_us=started_us,
        )

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

    async def _answer_whole(self, exchange: Exchange, dialect: Dialect, call: Call) -> None:
        async with contextlib.aclosing(self._generation.run(call)) as pieces:
            async for _ in pieces:
                pass
        finished = await self._finish(call, stopped=False)
        self._name_version(exchange, call)
        await exchange.answer(200, dialect.answer(call.request, call.call_id, call.started_us // 10**6, finished))

    async def _answer_stream(self, exchange: Exchange, dialect: Dialect, call: Call) -> None:
        stream = dialect.stream(call.request, call.call_id, call.started_us // 10**6)
        try:
            await self._stream(exchange, stream, call)
        except CallError as error:
            if not exchange.started:
                raise
            await self._record_cut(call, FinishReason.ERROR, error.message)
            await exchange.end(stream.error(error))

    async def _stream(self, exchange: Exchange, stream: AnswerStream, call: Call) -> None:
        text = StreamedText(
            self._rendering.tokenizer.backend,
            self._rendering.markers(call.prompt.ids),
            call.request.sampling.stop,
        )
        num_shown = 0  # tokens whose logprobs were sent
        async with contextlib.aclosing(self._generation.run(call)) as pieces:
            async for num_new in pieces:
                self._name_version(exchange, call)
                await exchange.start(200, EVENTS)
                shown = text.feed(call.capture.ids[-num_new:])
                data = stream.delta(*shown, self._logprobs(call, num_shown) if any(shown) else None)
                if data:
                    num_shown = len(call.capture.ids)
                    await exchange.send(data)
                if text.stopped:
                    break
        finished = await self._finish(call, stopped=text.stopped)
        await exchange.start(200, EVENTS)
        await exchange.end(stream.finish(text.rest(finished.answer), finished, self._logprobs(call, num_shown)))

    async def _finish(self, call: Call, *, stopped: bool) -> Finished:
        """Understand what came, record it, remember it. Raises `NotRecorded`."""
        request, capture = call.request, call.capture
        answer = self._rendering.parse(capture.ids, call.prompt.ids, request.tools, request.parse_tools)
        answer, stop = cut_at_stop(answer, request.sampling.stop)
        finish = capture.finish
        assert finish is not None or stopped
        ended_by_length = stop is None and finish is not None and finish.type == "length"
        matched = stop if stop is not None else _single(finish.matched) if finish is not None else None
        reason = FinishReason.LENGTH if ended_by_length else FinishReason.STOP
        await self._record(call, record_of(call, reason, matched=matched, answer=answer))
        self._remember(call, answer)
        return Finished(
            answer=answer,
            reason=reason.value,
            usage=Usage(
                prompt_tokens=len(call.prompt.ids),
                completion_tokens=len(capture.ids),
                cached_tokens=capture.cached_tokens,
            ),
            logprobs=self._logprobs(call, 0),
        )

    async def _record(self, call: Call, record: CallRecord) -> None:
        call.recorded = True
        self._count(call, record.finish)
        try:
            await asyncio.shield(asyncio.wrap_future(self._log.append(record)))
        except StoreError as error:
            if not self._answer_unrecorded:
                raise NotRecorded(f"the answer could not be recorded, so it is not given: {error}") from error
            self.records_lost += 1
            self._metrics.records_lost.inc()
            logger.error("a call was answered without a record: %s", error)

    async def _record_cut(self, call: Call, reason: FinishReason, error: str | None) -> None:
        """Record a call that ended before its answer did. A log that refuses is only logged: nothing was given."""
        if call.recorded:
            return
        call.recorded = True
        self._count(call, reason)
        ids = call.capture.ids
        answer = self._rendering.parse(ids, call.prompt.ids, call.request.tools, call.request.parse_tools)
        try:
            await asyncio.wrap_future(self._log.append(record_of(call, reason, answer=answer, error=error)))
        except StoreError as failure:
            logger.error("an unfinished call was not recorded: %s", failure)

    def _remember(self, call: Call, answer: Answer) -> None:
        member = call.membership
        known = known_call(call.call_id, member.session_id, member.group_id, call.prompt, call.capture.ids, answer)
        self.memory.remember(known, call.prompt.digests)

    def _count(self, call: Call, finish: FinishReason) -> None:
        self.num_calls += 1
        self.last_version = call.capture.last_version or self.last_version
        self._metrics.calls.labels(finish=finish.value).inc()
        self._metrics.tokens.labels(kind="prompt").inc(len(call.prompt.ids))
        self._metrics.tokens.labels(kind="output").inc(len(call.capture.ids))

    def _name_version(self, exchange: Exchange, call: Call) -> None:
        version = call.capture.last_version
        if version is not None and not exchange.started:
            exchange.answer_headers["x-weir-version"] = version

    def _logprobs(self, call: Call, start: int) -> list[TokenLogprob] | None:
        """Text and logprob of the output tokens from `start` on, where the agent asked; without the end of turn."""
        if not call.request.logprobs:
            return None
        decode = self._rendering.tokenizer.decode
        stop_ids = self._rendering.stop_ids
        pairs = zip(call.capture.ids[start:], call.capture.logprobs[start:], strict=True)
        return [TokenLogprob(text=decode([n]), logprob=logprob) for n, logprob in pairs if n not in stop_ids]


def _single(matched: int | str | list[int] | None) -> int | str | None:
    return matched[0] if isinstance(matched, list) else matched
