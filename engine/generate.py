"""/generate: submits a body to the engine loop as a request, and answers with the sampled tokens.

Invariant: a request whose client disconnected is aborted at the next step; at most one request of a rid is in flight.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from llguidance import LLMatcher
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from weir.engine.answers import Answer
from weir.engine.errors import BadRequest
from weir.engine.grammars import Grammars
from weir.engine.loop import EngineLoop
from weir.engine.params import GenerateBody, SamplingParams, check_prompt, parse_body, resolve_sampling
from weir.engine.request import Request
from weir.engine.responses import JsonResponse, error_response, server_sent
from weir.engine.texts import Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of every request."""

    vocab_size: int
    context_len: int
    eos_ids: frozenset[int]
    incremental: bool
    routes: bool  # the model is a mixture of experts


class Generate:
    """The handler of /generate, and the requests in flight."""

    def __init__(self, engine: EngineLoop, texts: Texts, grammars: Grammars, limits: Limits) -> None:
        self._engine = engine
        self._texts = texts
        self._grammars = grammars
        self._limits = limits
        self._in_flight: dict[str, Request] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call, as an ASGI endpoint: it ends when the answer has been sent. Raises `BadRequest`."""
        news = asyncio.Event()
        body = parse_body(await HttpRequest(scope, receive).body())
        grammar = await asyncio.to_thread(self._grammars.compile, params) if (params := _constrained(body)) else None
        request = self._request(body, grammar, news)
        self._in_flight[request.rid] = request
        watcher = asyncio.create_task(self._watch(request, receive))
        try:
            self._engine.submit(request)
            answer = Answer(request, self._texts, incremental=body.stream and self._limits.incremental)
            response = _streamed(request, answer, news) if body.stream else await _whole(request, answer, news)
            await response(scope, receive, send)
        finally:
            watcher.cancel()
            del self._in_flight[request.rid]
            if request.finish is None:
                self._abort(request)

    def _request(self, body: GenerateBody, grammar: LLMatcher | None, news: asyncio.Event) -> Request:
        rid = body.rid or os.urandom(16).hex()
        if rid in self._in_flight:
            raise BadRequest(f"Duplicate request ID detected: {rid}")
        limits = self._limits
        prompt = self._prompt(body)
        check_prompt(prompt, vocab_size=limits.vocab_size, context_len=limits.context_len)
        sampling = resolve_sampling(
            body.sampling_params,
            prompt_len=len(prompt),
            context_len=limits.context_len,
            vocab_size=limits.vocab_size,
            eos_ids=limits.eos_ids,
        )
        if sampling.stop and not self._texts.available:
            raise BadRequest("stop needs a tokenizer, and the model folder has none; use stop_token_ids.")
        return Request(
            rid=rid,
            prompt_ids=prompt,
            sampling=sampling,
            seed=self._engine.next_seed() if sampling.seed is None else sampling.seed,
            stream=body.stream,
            return_logprob=body.return_logprob,
            logprob_start=_logprob_start(body, len(prompt)),
            routed_start=_routed_start(body, len(prompt)) if limits.routes else None,
            num_top=min(body.top_logprobs_num or 0, limits.vocab_size) if body.return_logprob else 0,
            changed=news.set,
            matcher=self._grammars.begin(grammar, sampling.stop_ids),
        )

    def _prompt(self, body: GenerateBody) -> list[int]:
        if body.input_ids is not None:
            return body.input_ids
        if body.text is None:
            raise BadRequest("Either text or input_ids should be provided.")
        if not self._texts.available:
            raise BadRequest("text needs a tokenizer, and the model folder has none; send input_ids.")
        return self._texts.encode(body.text)

    async def _watch(self, request: Request, receive: Receive) -> None:
        """Abort the request when its client disconnects."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._abort(request)

    def _abort(self, request: Request) -> None:
        self._engine.ask(lambda: self._engine.abort(lambda known: known is request))


def announce_on(loop: asyncio.AbstractEventLoop) -> Callable[[Sequence[Request]], None]:
    """A function that wakes requests on `loop` from the engine loop's thread, all of a step by one call."""

    def announce(requests: Sequence[Request]) -> None:
        if requests and not loop.is_closed():
            loop.call_soon_threadsafe(_wake, requests)

    return announce


def _wake(requests: Sequence[Request]) -> None:
    for request in requests:
        request.changed()


def _constrained(body: GenerateBody) -> SamplingParams | None:
    """The sampling parameters of a body, where they hold a grammar."""
    params = body.sampling_params
    return params if params is not None and params.has_grammar else None


def _logprob_start(body: GenerateBody, prompt_len: int) -> int | None:
    start = body.logprob_start_len
    if not body.return_logprob or start is None or start == -1:
        return None
    if not 0 <= start < prompt_len:
        raise BadRequest(f"logprob_start_len must be -1 or in [0, {prompt_len - 1}], got {start}.")
    return start


def _routed_start(body: GenerateBody, prompt_len: int) -> int | None:
    if not body.return_routed_experts:
        return None
    if not 0 <= body.routed_experts_start_len <= prompt_len:
        start = body.routed_experts_start_len
        raise BadRequest(f"routed_experts_start_len must be in [0, {prompt_len}], got {start}.")
    return body.routed_experts_start_len


async def _whole(request: Request, answer: Answer, news: asyncio.Event) -> Response:
    while request.finish is None:
        await news.wait()
        news.clear()
    if request.finish.get("status_code"):
        return error_response(request.finish["message"], request.finish["status_code"])
    return JsonResponse(answer.chunk())


def _streamed(request: Request, answer: Answer, news: asyncio.Event) -> Response:
    return StreamingResponse(
        _events(request, answer, news), media_type="text/event-stream", headers={"cache-control": "no-cache"}
    )


async def _events(request: Request, answer: Answer, news: asyncio.Event) -> AsyncIterator[bytes]:
    finished = False
    while not finished:
        await news.wait()
        news.clear()
        finished = request.finish is not None
        if answer.has_news:
            yield server_sent(answer.chunk())
    yield b"data: [DONE]\n\n"
