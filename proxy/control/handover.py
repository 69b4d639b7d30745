"""A retry that reached another worker than its first try: that worker's answer is passed through, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import aiohttp

from weir.proxy.control.peers import Peers
from weir.proxy.errors import PeerFailed, PeerGone
from weir.proxy.http.client_watch import while_client_stays
from weir.proxy.http.exchange import Exchange
from weir.store.catalog.rows import ProxyRow
from weir.store.errors import StoreError

_NO_LIMIT = aiohttp.ClientTimeout(total=None)
_OF_THE_CONNECTION = frozenset({"connection", "content-length", "transfer-encoding", "host", "keep-alive"})

logger = logging.getLogger("weir.proxy.control.handover")


class Handover:
    """Finds the worker that has a retry's first try in flight, and passes its answer through."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def holder(self, request_hash: str) -> ProxyRow | None:
        """The worker that has the request in flight; None where there is none."""
        try:
            for peer in await self._peers.workers():
                if await self._has(peer, request_hash):
                    return peer
        except (PeerFailed, StoreError) as error:
            logger.warning("not every worker reported whether it has the first try of a retry: %s", error)
        return None

    async def take_over(self, holder: ProxyRow, exchange: Exchange, body: bytes) -> bool:
        """Pass the holder's answer through to this client; False if that failed before anything was sent."""
        try:
            await self._pass_through(holder, exchange, body)
        except (PeerFailed, PeerGone, aiohttp.ClientError) as error:
            logger.warning("a retry was not handed over: %s", error)
            return exchange.started
        return True

    async def _has(self, peer: ProxyRow, request_hash: str) -> bool:
        with contextlib.suppress(PeerGone):
            answer = await self._peers.get(peer, f"/weir/worker/in_flight/{request_hash}")
            return bool(answer["in_flight"])
        return False

    async def _pass_through(self, peer: ProxyRow, exchange: Exchange, body: bytes) -> None:
        headers = {name: value for name, value in exchange.headers.items() if name not in _OF_THE_CONNECTION}
        async with (
            self._peers.session(peer, _NO_LIMIT) as (session, base),
            session.post(base + exchange.path, data=body, headers=headers) as response,
        ):
            passing = asyncio.create_task(_pass_on(response, exchange))
            await while_client_stays(exchange, passing)


async def _pass_on(response: aiohttp.ClientResponse, exchange: Exchange) -> None:
    given = {name.lower(): value for name, value in response.headers.items()}
    exchange.answer_headers |= {name: value for name, value in given.items() if name.startswith(("x-weir-", "retry-"))}
    await exchange.start(response.status, given.get("content-type", "application/json").encode())
    async for data in response.content.iter_any():
        await exchange.send(data)
    await exchange.end()
