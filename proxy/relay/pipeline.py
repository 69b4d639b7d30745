"""Calls at the levels below `tokens`: the agent's body upstream as it came, the answer back as it came, recorded on the
way.

Invariants: what the agent sends and gets is what it would be without us, byte for byte, but for the flags that are
added and taken out again; an answer's last byte is sent only after its records were accepted, unless the store's
settings say otherwise; a record below the certified level is counted by its reason. The gate holds new calls; those in
flight are left to finish. Not here: what answers mean (relay_answer.py), levels (relay_recording.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from weir.proxy.config import ProxyConfig
from weir.proxy.conversation.call_request import Message
from weir.proxy.conversation.caller import AGENT_HEADERS, Caller, Names, identify
from weir.proxy.conversation.digests import Digest, chain
from weir.proxy.dialects.registry import DIALECTS
from weir.proxy.engines.gate import Gate
from weir.proxy.engines.versions import EngineVersions
from weir.proxy.errors import (
    BadRequest,
    CallError,
    NoSuchRoute,
    Unavailable,
    UpstreamFailed,
    UpstreamLost,
    UpstreamNotTaken,
)
from weir.proxy.http.exchange import EVENTS, JSON, Exchange, json_keepalive
from weir.proxy.metrics import Metrics
from weir.proxy.recording.call import now_us
from weir.proxy.relay.call import RelayedCall
from weir.proxy.relay.client import RelayUpstream
from weir.proxy.relay.history import history
from weir.proxy.relay.item_answers import listener
from weir.proxy.relay.levels import ROUTES, Certified, Level, RouteForm
from weir.proxy.relay.recorder import RelayRecorder
from weir.proxy.relay.response import Answering, content_type
from weir.proxy.relay.wire import count, downward, error_event, keepalive_event, names_in, read_fields, spliced, upward
from weir.proxy.serving.generate import MAX_BACKOFF_S
from weir.proxy.serving.replay import can_replay, replay
from weir.proxy.serving.retries import Retries
from weir.proxy.sessions.budgets import Budgets
from weir.proxy.sessions.session_book import SessionBook
from weir.proxy.stitching.call_cache import KnownCall, StitchMemory
from weir.proxy.stitching.store_lookup import Following
from weir.store.records.call_record import FinishReason
from weir.store.records.ids import new_id

_NO_CALLS = frozenset({("GET", "/v1/models"), ("POST", "/v1/messages/count_tokens")})


class Relay:
    """Serves calls at the levels `passthrough`, `logprobs` and `text`."""

    def __init__(
        self,
        *,
        config: ProxyConfig,
        retries: Retries,
        certified: Certified,
        upstream: RelayUpstream,
        gate: Gate,
        versions: EngineVersions,
        sessions: SessionBook,
        budgets: Budgets,
        memory: StitchMemory,
        following: Following,
        recorder: RelayRecorder,
        metrics: Metrics,
    ) -> None:
        self.level = certified.level
        self._config = config
        self._retries = retries
        self._memory = memory
        self._following = following
        self._certified = certified
        self._upstream = upstream
        self._gate = gate
        self._versions = versions
        self._sessions = sessions
        self._budgets = budgets
        self._recorder = recorder
        self._metrics = metrics
        self._key = config.upstream_api_key
        self._answering = Answering(recorder, self._key)

    async def serve(self, exchange: Exchange, route: str, names: Names) -> None:
        """Serve one request. Raises `CallError` where nothing was answered yet, and CancelledError from outside."""
        dialect = ROUTES.get(route)
        if dialect is not None and exchange.method == "POST":
            await self._serve_call(exchange, dialect, route, names)
        elif (exchange.method, route) in _NO_CALLS or (exchange.method == "GET" and route.startswith("/v1/models/")):
            await self._pass_on(exchange, route)
        else:
            raise NoSuchRoute(
                f"{exchange.method:.20} {route:.200} is not relayed; calls are POST {', '.join(ROUTES)}, and "
                "GET /v1/models is passed on."
            )

    async def _serve_call(self, exchange: Exchange, dialect: str, route: str, names: Names) -> None:
        started_us = now_us()
        body = await exchange.body(self._config.max_request_bytes, self._config.body_timeout_s)
        if await self._retries.joined(exchange, body):
            return
        fields = read_fields(body)
        hint, agent_ids = names_in(fields)
        agent_ids |= {name: exchange.headers[name] for name in AGENT_HEADERS if name in exchange.headers}
        caller = identify(names, exchange.key_names, exchange.headers, hint, agent_ids)
        if await self._replayed(exchange, dialect, body, caller):
            return
        async with self._retries.trying(exchange, body) as this:
            call = await self._open(exchange, dialect, caller, body, fields, started_us)
            await self._try(exchange, call, route)
            this.call_ids = call.call_ids if call.answered else []

    async def _replayed(self, exchange: Exchange, dialect: str, body: bytes, caller: Caller) -> bool:
        """Give a retry the answer that was recorded. Whether there was one that this proxy can say again."""
        records = await self._retries.recorded(exchange, dialect, body, caller.session_id)
        if not records:
            return False
        form = DIALECTS[dialect]
        try:
            request = form.parse(body, exchange.headers)
        except CallError:  # the upstream understands more than we do
            return False
        if not can_replay(request, records, None):
            return False
        await replay(exchange, form, request, records, None)
        return True

    async def _try(self, exchange: Exchange, call: RelayedCall, route: str) -> None:
        """Relay a call; whatever ends it, it is recorded."""
        exchange.answer_headers["x-weir-call"] = call.call_ids[0]
        exchange.answer_headers["x-weir-session"] = call.membership.session_id
        exchange.answer_headers["x-weir-level"] = call.form.level.value
        if call.streamed:
            exchange.attend(self._config.keepalive_s, lambda: _keepalive(exchange, call), EVENTS)
        else:
            exchange.attend(self._config.keepalive_s, json_keepalive(lambda: exchange.queued or call.waiting), JSON)
        try:
            await exchange.turn()
            await self._send(exchange, call, route)
        except asyncio.CancelledError:
            await self._recorder.cut(
                call, FinishReason.DISCONNECT if exchange.client_left else FinishReason.ABORT, None
            )
            raise
        except CallError as error:
            await self._recorder.cut(call, FinishReason.ERROR, error.message)
            if not (exchange.started and call.streamed):
                raise
            await exchange.end(error_event(call.dialect, error))
        finally:
            exchange.dismiss()

    async def _pass_on(self, exchange: Exchange, route: str) -> None:
        """A request that is no call (models, counting tokens): relayed, not recorded."""
        body = await exchange.body(self._config.max_request_bytes, self._config.body_timeout_s)
        headers = upward(exchange.headers, key=self._key, routing_key=None)
        try:
            async with self._upstream.relay(exchange.method, _target(exchange, route), body, headers) as response:
                exchange.answer_headers |= downward(response.headers)
                await exchange.answer(response.status, await response.read(), content_type(response))
        except (UpstreamNotTaken, UpstreamLost) as error:
            raise Unavailable(str(error)) from error

    async def _open(
        self, exchange: Exchange, dialect: str, caller: Caller, body: bytes, fields: dict[str, Any], started_us: int
    ) -> RelayedCall:
        """From bytes to a call whose session is known. Raises `BadRequest` where its route cannot give the level."""
        form, headers, num_answers = self._form(dialect), exchange.headers, count(fields.get("n")) or 1
        tools, messages = history(dialect, fields)
        digests = chain(tools, messages)
        known = await self._continued(messages, digests, caller.session_id)
        membership = await self._sessions.joined(caller, known, f"group_{digests[-1].hex()}")
        return RelayedCall(
            request_id=new_id("request"),
            retry_count=count(headers.get("x-stainless-retry-count")),
            call_ids=[new_id("call")],
            dialect=dialect,
            body=body,
            fields=fields,
            promised=self.level,
            form=form,
            digests=digests,
            known=known,
            membership=membership,
            allowance=await self._budgets.begin(membership, num_calls=num_answers),
            agent_ids=caller.agent_ids,
            user_agent=headers.get("user-agent"),
            started_us=started_us,
            answer=listener(
                dialect, form.strip(fields, streamed=fields.get("stream") is True), count(fields.get("n")) or 1
            ),
        )

    async def _continued(
        self, messages: Sequence[Message], digests: Sequence[Digest], session_id: str | None
    ) -> KnownCall | None:
        """The call that a history continues: of this process, else of any."""
        answered = [number for number, message in enumerate(messages, 1) if message["role"] == "assistant"]
        if not answered:
            return None
        ends = digests[: answered[-1] + 1]
        found = self._memory.find(ends, session_id)
        if found is None or found[1] < answered[-1]:
            await self._following.learn_ends([digests[number] for number in answered])
            found = self._memory.find(ends, session_id)
        return found[0] if found is not None else None

    def _form(self, dialect: str) -> RouteForm:
        form = self._certified.form(dialect)
        if form.level is not self.level and self._config.below_level == "refuse":
            raise BadRequest(
                f"The upstream gives no more than capture level {form.level.value} for {dialect}, and this proxy "
                f"captures {self.level.value}: use another API of it (chat completions), or let the proxy record what "
                'there is with proxy.below_level = "record".',
                code="below_capture_level",
            )
        return form

    async def _send(self, exchange: Exchange, call: RelayedCall, route: str) -> None:
        """Past the gate and upstream, again while no engine took it; then the answer, whole or streamed."""
        body = spliced(call.body, call.fields, call.form.flags_for())
        routing_key = call.membership.session_id if self.level is Level.PASSTHROUGH else None
        headers = upward(exchange.headers, key=self._key, routing_key=routing_key)
        target = _target(exchange, route)
        refused, refused_since = 0, time.monotonic()
        while True:
            await self._pass_gate(call)
            try:
                with self._gate.passing():
                    async with self._upstream.relay("POST", target, body, headers) as response:
                        if response.status != 503 or self._gate.is_open:
                            await self._answering.answer(exchange, call, response)
                            return
            except UpstreamNotTaken as error:
                refused += 1
                if not self._gate.is_open:
                    refused, refused_since = 0, time.monotonic()
                elif time.monotonic() - refused_since >= self._config.refused_limit_s:
                    raise Unavailable(f"the upstream does not take calls, tried {refused} times: {error}") from error
            except UpstreamLost as error:
                raise UpstreamFailed(str(error)) from error
            await asyncio.sleep(min(self._config.retry_backoff_s * 2**refused, MAX_BACKOFF_S))

    async def _pass_gate(self, call: RelayedCall) -> None:
        call.waiting = True
        try:
            held_us = await self._gate.wait_open()
            if self.level is Level.PASSTHROUGH:
                call.served = await self._versions.now()
            while not self._gate.is_open:  # it closed while the engines were asked
                held_us += await self._gate.wait_open()
                call.served = await self._versions.now()
        finally:
            call.waiting = False
        if held_us:
            call.held_us += held_us
            self._metrics.hold_seconds.observe(held_us / 1e6)


def _keepalive(exchange: Exchange, call: RelayedCall) -> bytes:
    return keepalive_event(call.dialect) if exchange.queued or call.waiting else b""


def _target(exchange: Exchange, route: str) -> str:
    return f"{route}?{exchange.query}" if exchange.query else route
