"""A relayed request on its way upstream: past the gate, and again while no engine took it.

Invariant: only what the upstream did not take is sent again, because a relayed answer cannot be continued from its
middle. The gate holds new calls; those in flight are left to finish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from weir.proxy.engines.client import TRY_LATER
from weir.proxy.errors import Unavailable, UpstreamLost, UpstreamNotTaken
from weir.proxy.http.exchange import Exchange
from weir.proxy.pipeline.dispatch import Dispatch
from weir.proxy.relay.call import RelayedCall
from weir.proxy.relay.client import RelayUpstream
from weir.proxy.relay.levels import Level
from weir.proxy.relay.response import Answering, content_type
from weir.proxy.relay.wire import downward, spliced, upward, with_values

LOST_RETRIES = 0


class Forwarding:
    """Sends requests upstream and passes their answers back."""

    def __init__(self, upstream: RelayUpstream, dispatch: Dispatch, answering: Answering, key: str | None) -> None:
        """`key` is sent upstream instead of the agents' own, where there is one."""
        self._upstream = upstream
        self._dispatch = dispatch
        self._answering = answering
        self._key = key

    async def send(self, exchange: Exchange, route: str, calls: Sequence[RelayedCall]) -> None:
        """Relay one call, and its answer, whole or streamed. Raises `Unavailable` or `UpstreamFailed`."""
        (call,) = calls
        body = spliced(with_values(call.body, call.fields, call.overrides), call.fields, call.form.flags_for())
        routing_key = call.membership.session_id if call.promised is Level.PASSTHROUGH else None
        headers = upward(exchange.headers, key=self._key, routing_key=routing_key)
        target = _target(exchange, route)
        dispatch = self._dispatch
        attempts = dispatch.attempts(call)
        while True:
            flight = dispatch.flight(call, attempts)
            try:
                async with (
                    flight as call.served,
                    self._upstream.relay("POST", target, body, headers) as response,
                ):
                    flight.was_turned_away = response.status in TRY_LATER
                    if response.status != 503 or dispatch.gate.is_open:
                        await self._answering.answer(exchange, call, response)
                        return
                await asyncio.sleep(0)
            except (UpstreamNotTaken, UpstreamLost) as error:
                await dispatch.wait_after(error, attempts)

    async def pass_on(self, exchange: Exchange, route: str, body: bytes) -> None:
        """Relay a request that is no call (models, counting tokens), unrecorded. Raises `Unavailable`."""
        headers = upward(exchange.headers, key=self._key, routing_key=None)
        try:
            async with self._upstream.relay(exchange.method, _target(exchange, route), body, headers) as response:
                exchange.answer_headers |= downward(response.headers)
                await exchange.answer(response.status, await response.read(), content_type(response))
        except (UpstreamNotTaken, UpstreamLost) as error:
            raise Unavailable(str(error)) from error


def _target(exchange: Exchange, route: str) -> str:
    return f"{route}?{exchange.query}" if exchange.query else route
