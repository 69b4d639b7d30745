"""The answers of one request, generated, recorded and sent: as one body, or as events while they are generated.

A request has one call for each answer that it asks for; they run at the same time, on one exchange. Invariant: the
order of `AnswerStream`: open before any delta, one finish for each choice, close at the end; what is sent of an answer
before its finish is a prefix of what its record says.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from weir.proxy.conversation.call_request import AnswerStream, Delta, Dialect, Finished, total_usage
from weir.proxy.http.exchange import EVENTS, Exchange
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.rendering.stream_parser import Reading, StreamedText
from weir.proxy.serving.call import Call
from weir.proxy.serving.generate import Generation
from weir.proxy.serving.recorder import Recorder

_T = TypeVar("_T")


class Answers:
    """Makes answers of calls."""

    def __init__(self, rendering: Rendering, generation: Generation, recorder: Recorder) -> None:
        self.rendering = rendering
        self.generation = generation
        self.recorder = recorder

    async def send_whole(self, exchange: Exchange, dialect: Dialect, calls: Sequence[Call]) -> None:
        """Send all answers as one body. Raises `CallError`."""
        finished = await _together([self._finished(call) for call in calls])
        first = calls[0]
        _name_version(exchange, first)
        await exchange.answer(200, dialect.answer(first.request, first.call_id, first.started_us // 10**6, finished))

    def stream(self, exchange: Exchange, dialect: Dialect, first: Call) -> AnswerEvents:
        """The events of a request whose first call is `first`."""
        return AnswerEvents(self, exchange, dialect.stream(first.request, first.call_id, first.started_us // 10**6))

    async def _finished(self, call: Call) -> Finished:
        async with contextlib.aclosing(self.generation.run(call)) as pieces:
            async for _ in pieces:
                pass
        return await self.recorder.finish(call, stopped=False)


class AnswerEvents:
    """The answers of one request as events."""

    def __init__(self, answers: Answers, exchange: Exchange, stream: AnswerStream) -> None:
        self.error = stream.error
        self._rendering = answers.rendering
        self._generation = answers.generation
        self._recorder = answers.recorder
        self._exchange = exchange
        self._stream = stream
        self._opened = False

    async def send(self, calls: Sequence[Call]) -> None:
        """Send all answers while they are generated. Raises `CallError`, also in the middle."""
        is_only = len(calls) == 1
        ended = await _together([self._send_one(call, is_only) for call in calls])
        usage = total_usage([finished for finished, _ in ended], calls[0].request.num_answers)
        await self._exchange.end(b"".join(data for _, data in ended) + self._stream.close(usage))

    async def _send_one(self, call: Call, is_only: bool) -> tuple[Finished, bytes]:
        """Send one answer but for its last events; those of an only answer are left to the end of the stream."""
        request = call.request
        text = StreamedText(self._reading(call), request.sampling.stop, call.forced_ids, request.prefill)
        num_sent = 0  # tokens whose logprobs were sent
        async with contextlib.aclosing(self._generation.run(call)) as pieces:
            async for num_new in pieces:
                await self._open(call)
                if call.keeps_grammar:  # an abort makes it start anew, so none of it is shown before its end
                    continue
                delta = text.feed(call.capture.ids[-num_new:])
                if delta:
                    data = self._stream.delta(call.choice, self._with_logprobs(delta, call, num_sent))
                    num_sent = len(call.capture.ids)
                    await self._exchange.send(data)
                if text.stopped:
                    break
        finished = await self._recorder.finish(call, stopped=text.stopped)
        await self._open(call)
        rest = self._with_logprobs(text.rest(finished.answer), call, num_sent)
        last = self._stream.finish(call.choice, rest, finished)
        if not is_only:
            await self._exchange.send(last)
            last = b""
        return finished, last

    def _reading(self, call: Call) -> Reading:
        if call.raw_prompt is not None:
            return self._rendering.text_reading()
        request = call.request
        rendering = self._rendering.under(request.template_variables)
        return rendering.reading(call.prompt.ids.tail, request.tools, request.parses_tools, call.call_id)

    async def _open(self, call: Call) -> None:
        if self._opened:
            return
        self._opened = True
        _name_version(self._exchange, call)
        await self._exchange.start(200, EVENTS)
        data = self._stream.open(msgspec.structs.replace(self._recorder.usage(call), completion_tokens=0))
        if data:
            await self._exchange.send(data)

    def _with_logprobs(self, delta: Delta, call: Call, start: int) -> Delta:
        if not call.request.logprobs:
            return delta
        return msgspec.structs.replace(delta, logprobs=self._recorder.logprobs(call, start))


def _name_version(exchange: Exchange, call: Call) -> None:
    """Name in a header the weights that answer."""
    version = call.capture.last_version
    if version is not None and not exchange.started:
        exchange.answer_headers["x-weir-version"] = version


async def _together(works: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """All results in order. The first failure ends the others, and is raised as it is."""
    if len(works) == 1:
        return [await works[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
