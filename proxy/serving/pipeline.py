"""Level `tokens`, from route to last byte: body → prompts → gate and engine → answers → records.

Invariant: whatever ends a call that reached an engine, it goes through the recorder.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import msgspec

from weir.proxy.conversation.call_request import CallRequest, Dialect
from weir.proxy.conversation.caller import Caller, identify
from weir.proxy.conversation.hosted_tools import without_hosted_tools
from weir.proxy.conversation.images import without_images
from weir.proxy.conversation.prompt_logprobs import first_position
from weir.proxy.dialects import chat_answer, messages_answer
from weir.proxy.dialects.messages_request import parse_for_count
from weir.proxy.dialects.registry import ROUTES, speaks_anthropic
from weir.proxy.errors import BadRequest, NoSuchRoute, UnknownModel
from weir.proxy.http.exchange import EVENTS, JSON, Exchange
from weir.proxy.pipeline.answer_guard import AnswerGuard
from weir.proxy.pipeline.client_retries import ClientRetries
from weir.proxy.pipeline.intake import Intake
from weir.proxy.pipeline.replay import call_headers, can_replay, replay
from weir.proxy.serving.answers import Answers
from weir.proxy.serving.call import Call
from weir.proxy.serving.prepare import Arrived, Opening
from weir.proxy.serving.stored_responses import Responses
from weir.proxy.sessions.idleness import Idleness
from weir.proxy.stitching.response_cache import continued
from weir.store.clock import now_us

COUNT_TOKENS, MODELS, RESPONSES = "/v1/messages/count_tokens", "/v1/models", "/v1/responses/"


class TokensPipeline:
    """Serves calls of any dialect: the proxy renders and parses, engines get and give token ids."""

    def __init__(
        self,
        intake: Intake,
        retries: ClientRetries,
        guard: AnswerGuard,
        *,
        model_names: Sequence[str],
        opening: Opening,
        idleness: Idleness,
        prompt_logprobs: bool,
        drop_builtin_tools: Sequence[str],
        images: str,
        responses: Responses,
        answers: Answers,
    ) -> None:
        self._intake = intake
        self._retries = retries
        self._guard = guard
        self._model_names = tuple(model_names)
        self._opening = opening
        self._idleness = idleness
        self._prompt_logprobs = prompt_logprobs
        self._drop_builtin_tools = tuple(drop_builtin_tools)
        self._images = images
        self._responses = responses
        self._answers = answers
        self._created_s = int(time.time())

    async def serve(self, exchange: Exchange, route: str, caller: Caller) -> None:
        """Serve one request. Raises `CallError` where nothing was answered yet, and CancelledError."""
        dialect = ROUTES.get(route)
        if dialect is not None:
            _require_method(exchange, "POST")
            with self._intake.place:
                await self._serve_call(exchange, dialect, caller)
        elif route == COUNT_TOKENS:
            _require_method(exchange, "POST")
            with self._intake.place:
                await self._count_tokens(exchange, caller)
        elif route == MODELS or route.startswith(f"{MODELS}/"):
            _require_method(exchange, "GET", "HEAD")
            await self._list_models(exchange, route.removeprefix(MODELS).strip("/"))
        elif route.startswith(RESPONSES):
            _require_method(exchange, "GET", "DELETE")
            await self._stored_response(exchange, route.removeprefix(RESPONSES), caller)
        else:
            routes = ", ".join((*ROUTES, COUNT_TOKENS))
            raise NoSuchRoute(f"Nothing is served at {route or '/':.200}; the agents' routes are {routes}, {MODELS}.")

    async def _serve_call(self, exchange: Exchange, dialect: Dialect, caller: Caller) -> None:
        started_us = now_us()
        body = await self._intake.body(exchange)
        if await self._retries.joined(exchange, caller, body):
            return
        request = await self._checked(dialect.parse(body, exchange.headers), caller)
        identity = identify(caller, exchange.headers, request.session_hint, request.agent_ids)
        records = await self._retries.recorded(exchange, caller, dialect.name, body, identity.session_id)
        rendering = self._answers.rendering
        if records and can_replay(request, records, rendering):
            await replay(exchange, dialect, request, records, rendering)
            return
        async with self._retries.trying(exchange, body) as this_try:
            arrived = Arrived(
                dialect=dialect.name,
                body=body,
                user_agent=exchange.headers.get("user-agent"),
                started_us=started_us,
                prompt_from=first_position(exchange.headers, always=self._prompt_logprobs),
            )
            calls = await self._opening.calls(arrived, request, identity)
            async with self._idleness.calls({call.membership.session_id for call in calls}):
                if await self._answer(exchange, dialect, calls):
                    this_try.call_ids = [call.call_id for call in calls]

    async def _answer(self, exchange: Exchange, dialect: Dialect, calls: list[Call]) -> bool:
        """Answer calls as one body or as events; False where a stream ended with an error."""
        exchange.answer_headers |= call_headers(calls[0].call_id, calls[0].membership.session_id)
        answers = self._answers
        if calls[0].request.stream:
            events = answers.stream(exchange, dialect, calls[0])
            return await self._guard.answer(
                exchange,
                calls,
                answers.recorder,
                events.send,
                keepalive=lambda: dialect.keepalive,
                content_type=EVENTS,
                error_event=events.error,
            )
        return await self._guard.answer(
            exchange,
            calls,
            answers.recorder,
            partial(answers.send_whole, exchange, dialect),
            keepalive=lambda: b" " if any(call.was_held for call in calls) else b"",
            content_type=JSON,
        )

    async def _checked(self, request: CallRequest, caller: Caller) -> CallRequest:
        """A request that this proxy can serve, with the conversation that it continues by id. Raises `CallError`."""
        if request.model not in self._model_names:
            raise self._unknown_model(request.model)
        request = without_images(without_hosted_tools(request, self._drop_builtin_tools), self._images)
        if request.wishes:
            request = self._answers.rendering.variables.fulfilled(request)
        if request.thread is not None and request.thread.previous is not None:
            request = continued(request, await self._responses.history(request.thread.previous, caller))
        return request

    async def _count_tokens(self, exchange: Exchange, caller: Caller) -> None:
        """Answer with the number of prompt tokens that a request would have, without calling the model."""
        body = await self._intake.body(exchange)
        request = await self._checked(parse_for_count(body, exchange.headers), caller)
        num_tokens = sum(len(prompt.ids) for prompt in await self._opening.prompts(request, None))
        num_tokens += len(self._answers.rendering.tokenizer.encode(request.prefill))
        await exchange.answer(200, messages_answer.count_body(num_tokens))

    async def _stored_response(self, exchange: Exchange, response: str, caller: Caller) -> None:
        """Answer with an earlier response, or delete it."""
        if exchange.query:
            unsupported = f"An earlier response is given whole; {exchange.query:.100} is not supported."
            raise BadRequest(unsupported, code="unsupported_parameter")
        if exchange.method == "GET":
            await exchange.answer(200, await self._responses.whole(response, caller))
            return
        await self._responses.delete(response, caller)
        body = {"id": response, "object": "response", "deleted": True}
        await exchange.answer(200, msgspec.json.encode(body))

    async def _list_models(self, exchange: Exchange, wanted: str) -> None:
        if wanted and wanted not in self._model_names:
            raise self._unknown_model(wanted)
        context = self._opening.context
        await context.learn()
        form = messages_answer if speaks_anthropic(exchange.path, exchange.headers) else chat_answer
        models = form.models_body(self._model_names, self._created_s, context.tokens, only=wanted or None)
        await exchange.answer(200, models)

    def _unknown_model(self, name: str) -> UnknownModel:
        return UnknownModel(f"The model {name!r:.200} is not served here; {self._model_names[0]!r} is.", param="model")


def _require_method(exchange: Exchange, *methods: str) -> None:
    if exchange.method not in methods:
        exchange.answer_headers["allow"] = ", ".join(methods)
        raise NoSuchRoute(f"{exchange.path:.200} takes {methods[0]}, not {exchange.method:.20}.", status=405)
