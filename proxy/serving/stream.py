"""The answers of one streamed request, sent while they come: one task for each, all on one exchange.

Invariant: the order of `AnswerStream`: open before any delta, one finish for each choice, close at the end; what is
sent of an answer before its finish is a prefix of what its record says. Not here: which text may be shown
(streaming.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from weir.proxy.conversation.call_request import AnswerStream, Delta, Finished, total_usage
from weir.proxy.errors import CallError
from weir.proxy.http.exchange import EVENTS, Exchange
from weir.proxy.recording.call import Call
from weir.proxy.recording.recorder import Recorder
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.rendering.stream_parser import Reading, StreamedText
from weir.proxy.serving.generate import Generation
from weir.store.records.call_record import FinishReason

_T = TypeVar("_T")


class Sending:
    """One streamed request."""

    def __init__(
        self,
        exchange: Exchange,
        stream: AnswerStream,
        *,
        rendering: Rendering,
        generation: Generation,
        recorder: Recorder,
    ) -> None:
        self._exchange = exchange
        self._stream = stream
        self._rendering = rendering
        self._generation = generation
        self._recorder = recorder
        self._opened = False

    async def run(self, calls: Sequence[Call]) -> None:
        """Send all answers. Raises `CallError` where none was begun yet; later ones become the last event."""
        is_only = len(calls) == 1
        try:
            ended = await together([self._answer(call, is_only) for call in calls])
            usage = total_usage([finished for finished, _ in ended], calls[0].request.num_answers)
            last = b"".join(data for _, data in ended) + self._stream.close(usage)
        except CallError as error:
            if not self._exchange.started:
                raise
            await self._recorder.cut(calls, FinishReason.ERROR, error.message)
            last = self._stream.error(error)
        await self._exchange.end(last)

    async def _answer(self, call: Call, is_only: bool) -> tuple[Finished, bytes]:
        """Send one answer but for its last events; those of an only answer are left to the end of the stream."""
        text = StreamedText(self._reading(call), call.request.sampling.stop, call.forced_ids)
        num_told = 0  # tokens whose logprobs were sent
        async with contextlib.aclosing(self._generation.run(call)) as pieces:
            async for num_new in pieces:
                await self._open(call)
                delta = text.feed(call.capture.ids[-num_new:])
                if delta:
                    data = self._stream.delta(call.choice, self._with_logprobs(delta, call, num_told))
                    num_told = len(call.capture.ids)
                    await self._exchange.send(data)
                if text.stopped:
                    break
        finished = await self._recorder.finish(call, stopped=text.stopped)
        await self._open(call)
        rest = self._with_logprobs(text.rest(finished.answer), call, num_told)
        last = self._stream.finish(call.choice, rest, finished)
        if not is_only:
            await self._exchange.send(last)
            last = b""
        return finished, last

    def _reading(self, call: Call) -> Reading:
        if call.raw_prompt is not None:
            return self._rendering.text_reading()
        request = call.request
        return self._rendering.reading(call.prompt.ids.tail, request.tools, request.parses_tools, call.call_id)

    async def _open(self, call: Call) -> None:
        if self._opened:
            return
        self._opened = True
        name_version(self._exchange, call)
        await self._exchange.start(200, EVENTS)
        data = self._stream.open(dataclasses.replace(self._recorder.usage(call), completion_tokens=0))
        if data:
            await self._exchange.send(data)

    def _with_logprobs(self, delta: Delta, call: Call, start: int) -> Delta:
        if not call.request.logprobs:
            return delta
        return msgspec.structs.replace(delta, logprobs=self._recorder.logprobs(call, start))


def name_version(exchange: Exchange, call: Call) -> None:
    """Say in a header which weights answer."""
    version = call.capture.last_version
    if version is not None and not exchange.started:
        exchange.answer_headers["x-weir-version"] = version


async def together(works: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """All results in order. The first failure ends the others, and is raised as it is."""
    if len(works) == 1:
        return [await works[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
