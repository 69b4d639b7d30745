"""Requests that a client sends again: they join the call in flight, or get the answer that was recorded.

A request is a retry if its client marks it: x-stainless-retry-count above 0 (openai, anthropic), or an idempotency key
that was used before. It belongs to an earlier request of the same caller, path and body. A repeated prompt without
these marks is a new call. So is a retry of a failed request, and a retry that could belong to several unnamed callers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cachetools import LRUCache
from xxhash import xxh3_128_hexdigest

from weir.proxy.conversation.caller import IDEMPOTENCY_KEY, Caller
from weir.proxy.errors import Unavailable
from weir.proxy.http.client_watch import while_client_stays
from weir.proxy.http.exchange import Exchange
from weir.proxy.metrics import Metrics
from weir.proxy.stitching.store_lookup import StoreLookup
from weir.store.catalog.rows import ProxyRow
from weir.store.clock import now_us
from weir.store.records.call_record import CallRecord

WINDOW_US = 15 * 60 * 10**6  # how long after its answer a retry still gets the recorded one
_KEPT_REQUESTS = 16_384
_KEPT_TRIES = 64


@dataclass(slots=True, eq=False)
class Try:
    """One request that may be sent again."""

    exchange: Exchange | None  # while it is in flight
    call_ids: list[str] = field(default_factory=list)  # of its calls, once they are answered


class OtherWorkers(Protocol):
    """The other processes of the same proxy, which may have the first try in flight."""

    async def holder(self, request_hash: str) -> ProxyRow | None:
        """The process that has the request in flight; None where there is none."""
        ...

    async def take_over(self, holder: ProxyRow, exchange: Exchange, body: bytes) -> bool:
        """Pass the holder's answer through to this client; False if that failed before anything was sent."""
        ...


class ClientRetries:
    """Recent requests, for deduplicating retries."""

    def __init__(self, lookup: StoreLookup, metrics: Metrics, grace_s: float, others: OtherWorkers) -> None:
        self._lookup = lookup
        self._metrics = metrics
        self._grace_s = grace_s
        self._others = others
        self._tries: LRUCache[str, list[Try]] = LRUCache(_KEPT_REQUESTS)

    def has_in_flight(self, request_hash: str) -> bool:
        """Whether a try of this request is in flight here."""
        return any(one.exchange is not None for one in self._tries.get(request_hash, ()))

    async def joined(self, exchange: Exchange, caller: Caller, body: bytes) -> bool:
        """Give a retry the answer of the call in flight that it belongs to; False where there is none."""
        if not _is_retry(exchange.headers):
            return False
        hashed = request_hash(exchange, body)
        first = self._first_try(hashed, caller, exchange.headers)
        if first is not None and first.exchange is not None:
            self._count("joined")
            await _follow(exchange, first.exchange)
            return True
        holder = await self._others.holder(hashed) if first is None else None
        if holder is None:
            return False
        self._count("handed_over")
        return await self._others.take_over(holder, exchange, body)

    async def recorded(
        self, exchange: Exchange, caller: Caller, dialect: str, body: bytes, session_id: str | None
    ) -> Sequence[CallRecord]:
        """The calls that answered an earlier try of this request, in the order of their choices; else none."""
        if not _is_retry(exchange.headers):
            return ()
        hashed = request_hash(exchange, body)
        first = self._first_try(hashed, caller, exchange.headers)
        if first is not None:
            found = [await self._lookup.call(call_id) for call_id in first.call_ids]
            records = [record for record in found if record is not None]
        elif self._tries.get(hashed):
            records = []  # tries that failed, or of callers that cannot be distinguished
        else:
            tries = await self._lookup.first_tries(dialect, body, session_id, now_us() - WINDOW_US)
            records = _one_request(tries, exchange.headers.get(IDEMPOTENCY_KEY), is_named=session_id is not None)
        self._count("replayed" if records else "new")
        return records

    @contextlib.asynccontextmanager
    async def trying(self, exchange: Exchange, body: bytes) -> AsyncIterator[Try]:
        """Around the serving of a request, which can be joined meanwhile; `Try.call_ids` names what answered it."""
        this = Try(exchange)
        if tries_again(exchange.headers):
            exchange.share(self._grace_s)
            self._keep(request_hash(exchange, body), this)
        try:
            yield this
        except BaseException:
            this.call_ids = []
            raise
        finally:
            this.exchange = None

    def _keep(self, hashed: str, this: Try) -> None:
        tries = self._tries.setdefault(hashed, [])
        tries.append(this)
        del tries[:-_KEPT_TRIES]

    def _first_try(self, hashed: str, caller: Caller, headers: Mapping[str, str]) -> Try | None:
        """The try that this request repeats: in flight, or answered."""
        tries = self._tries.get(hashed, [])
        deserted = [one for one in tries if one.exchange is not None and one.exchange.client_gone]
        if deserted:
            return deserted[-1]
        if tries and (len(tries) == 1 or caller.names_itself(headers)):
            return tries[-1] if tries[-1].exchange is not None or tries[-1].call_ids else None
        return None

    def _count(self, how: str) -> None:
        self._metrics.retries.labels(how=how).inc()


def tries_again(headers: Mapping[str, str]) -> bool:
    """Whether this client sends a request again when it fails."""
    return "x-stainless-retry-count" in headers or IDEMPOTENCY_KEY in headers


def request_hash(exchange: Exchange, body: bytes) -> str:
    """The hash of what all tries of one request share: caller, path and body."""
    names = ("authorization", "x-api-key", "x-weir-session", "x-weir-group", IDEMPOTENCY_KEY)
    parts = [exchange.path, *(exchange.headers.get(name, "") for name in names)]
    return xxh3_128_hexdigest("\0".join(parts).encode() + b"\0" + body)


async def _follow(exchange: Exchange, first: Exchange) -> None:
    """Give this client the answer of another exchange from its beginning. Raises `Unavailable` if that never ends."""
    assert first.shared is not None
    following = asyncio.create_task(first.shared.follow(exchange.send_message))
    if not await while_client_stays(exchange, following) and not exchange.started:
        raise Unavailable("the call that this retry joined was cut short; try again")


def _is_retry(headers: Mapping[str, str]) -> bool:
    count = headers.get("x-stainless-retry-count", "0")
    return IDEMPOTENCY_KEY in headers or (count.isdecimal() and count.strip("0") != "")


def _one_request(records: Sequence[CallRecord], key: str | None, *, is_named: bool) -> list[CallRecord]:
    """The calls of the latest request with this key; none where the caller has no name and there were several."""
    requests: dict[str, list[CallRecord]] = {}
    for record in records:
        if key is None or record.agent_ids.get(IDEMPOTENCY_KEY) == key:
            requests.setdefault(record.request_id or record.call_id, []).append(record)
    if not requests or (len(requests) > 1 and not is_named and key is None):
        return []
    latest = next(reversed(requests.values()))
    return sorted(latest, key=lambda record: record.choice)
