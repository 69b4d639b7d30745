"""The levels below `tokens`, from route to last byte: the agent's body upstream as it came, the answer back as it came.

Invariants: bodies pass unchanged, byte for byte, except for flags that are added and removed again; an answer's last
byte is sent only after its records were accepted, unless the store's settings say otherwise; a record below the
certified level is counted by its reason.
"""

from __future__ import annotations

from functools import partial

from weir.proxy.conversation.call_request import Dialect
from weir.proxy.conversation.caller import Caller, Identity, identify
from weir.proxy.conversation.prompt_logprobs import refuse
from weir.proxy.dialects.registry import ROUTES
from weir.proxy.errors import CallError, NoSuchRoute
from weir.proxy.http.exchange import EVENTS, JSON, Exchange
from weir.proxy.pipeline.answer_guard import AnswerGuard
from weir.proxy.pipeline.client_retries import ClientRetries
from weir.proxy.pipeline.intake import Intake
from weir.proxy.pipeline.replay import can_replay, replay
from weir.proxy.relay.call import RelayedCall
from weir.proxy.relay.forward import Forwarding
from weir.proxy.relay.prepare import RelayOpening
from weir.proxy.relay.recorder import RelayRecorder
from weir.proxy.relay.wire import error_event, names_in, read_fields
from weir.proxy.sessions.idleness import Idleness
from weir.store.clock import now_us

_NO_CALLS = frozenset({("GET", "/v1/models"), ("POST", "/v1/messages/count_tokens")})


class RelayPipeline:
    """Serves calls at the levels `passthrough`, `logprobs` and `text`: the upstream renders and parses."""

    def __init__(
        self,
        intake: Intake,
        retries: ClientRetries,
        guard: AnswerGuard,
        *,
        opening: RelayOpening,
        idleness: Idleness,
        forwarding: Forwarding,
        recorder: RelayRecorder,
    ) -> None:
        self._intake = intake
        self._retries = retries
        self._guard = guard
        self._opening = opening
        self._idleness = idleness
        self._forwarding = forwarding
        self._recorder = recorder

    async def serve(self, exchange: Exchange, route: str, caller: Caller) -> None:
        """Serve one request. Raises `CallError` where nothing was answered yet, and CancelledError."""
        with self._intake.place:
            dialect = ROUTES.get(route)
            if dialect is not None and exchange.method == "POST":
                await self._serve_call(exchange, dialect, route, caller)
            elif (exchange.method, route) in _NO_CALLS or (
                exchange.method == "GET" and route.startswith("/v1/models/")
            ):
                await self._forwarding.pass_on(exchange, route, await self._intake.body(exchange))
            else:
                raise NoSuchRoute(
                    f"{exchange.method:.20} {route:.200} is not relayed; calls are POST {', '.join(ROUTES)}, and "
                    "GET /v1/models is passed on."
                )

    async def _serve_call(self, exchange: Exchange, dialect: Dialect, route: str, caller: Caller) -> None:
        started_us = now_us()
        refuse(exchange.headers)
        body = await self._intake.body(exchange)
        if await self._retries.joined(exchange, caller, body):
            return
        fields = read_fields(body)
        hint, agent_ids = names_in(fields)
        identity = identify(caller, exchange.headers, hint, agent_ids)
        if await self._replayed(exchange, caller, dialect, body, identity):
            return
        async with self._retries.trying(exchange, body) as this_try:
            call = await self._opening.call(dialect.name, body, fields, identity, exchange.headers, started_us)
            async with self._idleness.calls({call.membership.session_id}):
                await self._answer(exchange, dialect, route, call)
            this_try.call_ids = call.call_ids if call.answered else []

    async def _replayed(
        self, exchange: Exchange, caller: Caller, dialect: Dialect, body: bytes, identity: Identity
    ) -> bool:
        """Give a retry the answer that was recorded; False where there is none that this proxy can give again."""
        records = await self._retries.recorded(exchange, caller, dialect.name, body, identity.session_id)
        if not records:
            return False
        try:
            request = dialect.parse(body, exchange.headers)
        except CallError:  # the upstream understands more than we do
            return False
        if not can_replay(request, records, None):
            return False
        await replay(exchange, dialect, request, records, None)
        return True

    async def _answer(self, exchange: Exchange, dialect: Dialect, route: str, call: RelayedCall) -> None:
        exchange.answer_headers["x-weir-call"] = call.call_ids[0]
        exchange.answer_headers["x-weir-session"] = call.membership.session_id
        exchange.answer_headers["x-weir-level"] = call.form.level.value
        waiting = dialect.keepalive if call.streamed else b" "
        await self._guard.answer(
            exchange,
            (call,),
            self._recorder,
            partial(self._forwarding.send, exchange, route),
            keepalive=lambda: waiting if call.waiting else b"",
            content_type=EVENTS if call.streamed else JSON,
            error_event=(lambda error: error_event(call.dialect, error)) if call.streamed else None,
        )
