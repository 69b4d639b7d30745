"""The way to the engines: POST /generate on the router, one piece of a call each, as a stream of chunks.

Invariant: what is raised says whether an engine may have seen the piece: `UpstreamNotTaken` (no), `UpstreamLost`
(yes, or perhaps), `UpstreamRejected` (it refused the content). A stream without a finish reason is lost, even if it
says [DONE]: smg does when a worker dies. Not here: retries, the gate, what chunks mean.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import msgspec

from weir.proxy.capture import Chunk, decode_chunk
from weir.proxy.config import ProxyConfig
from weir.proxy.errors import UpstreamLost, UpstreamNotTaken, UpstreamRejected

_encode = msgspec.json.Encoder().encode
_TRY_LATER = frozenset({408, 425, 429, 503})
_SHOWN_BYTES = 500
_CONTROL_TIMEOUT = aiohttp.ClientTimeout(total=2)

logger = logging.getLogger("weir.proxy.upstream")


class Upstream:
    """A session of connections to one router."""

    def __init__(self, url: str, config: ProxyConfig) -> None:
        self.url = url.rstrip("/")
        self._generate_url = f"{self.url}/generate"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(
                total=config.answer_timeout_s, sock_connect=config.connect_timeout_s, connect=config.connect_timeout_s
            ),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("User-Agent", "Accept-Encoding", "Accept"),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def generate(self, body: dict[str, Any], routing_key: str) -> AsyncGenerator[Chunk, None]:
        """Send one piece and yield its chunks; the last has a finish reason. Closing it drops the connection."""
        headers = {"Content-Type": "application/json", "x-smg-routing-key": routing_key}
        try:
            async with self._session.post(self._generate_url, data=_encode(body), headers=headers) as response:
                if response.status != 200:
                    raise _status_error(response.status, await response.read())
                if body["stream"]:
                    async for chunk in _streamed_chunks(response):
                        yield chunk
                else:
                    yield _decoded(await response.read())
        except aiohttp.ClientConnectorError as error:
            raise UpstreamNotTaken(f"cannot connect to the router at {self.url}: {error.strerror}") from error
        except aiohttp.ConnectionTimeoutError as error:
            raise UpstreamNotTaken(f"the router at {self.url} does not accept connections") from error
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise UpstreamLost(f"the connection to the router ended before the answer did: {error!r}") from error

    async def has_workers(self) -> bool:
        """Whether the router answers and knows an engine."""
        return any(worker.get("is_healthy", True) for worker in await self._workers())

    async def continue_engines(self) -> None:
        """Ask every engine of the router to go on: who paused them is gone, and calls would wait in them."""
        for worker in await self._workers():
            url = f"{str(worker.get('url')).rstrip('/')}/continue_generation"
            try:
                async with self._session.post(url, json={}, timeout=_CONTROL_TIMEOUT) as response:
                    status = response.status
            except (aiohttp.ClientError, TimeoutError) as error:
                logger.warning("an engine that may be paused cannot be reached: POST %s: %r", url, error)
            else:
                logger.log(logging.INFO if status == 200 else logging.WARNING, "POST %s answered %d", url, status)

    async def _workers(self) -> list[dict[str, Any]]:
        """What the router says of its engines; none when it cannot be asked."""
        try:
            async with self._session.get(f"{self.url}/workers", timeout=_CONTROL_TIMEOUT) as response:
                listed = msgspec.json.decode(await response.read()) if response.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return []
        return list(listed.get("workers", ())) if isinstance(listed, dict) else []


async def _streamed_chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[Chunk, None]:
    """The chunks of an event stream, up to the one that finishes. Raises `UpstreamLost` where none does."""
    rest = b""
    _acknowledge_at_once(response)
    while data := await response.content.readany():
        _acknowledge_at_once(response)
        *events, rest = (rest + data).split(b"\n\n")
        for event in events:
            chunk = _chunk_of(event)
            if chunk is None:
                continue
            yield chunk
            if chunk.meta_info.finish_reason is not None:
                return
    raise UpstreamLost("the engine's stream ended without a finish reason")


def _chunk_of(event: bytes) -> Chunk | None:
    """The chunk in one event; None for comments and [DONE]. Raises `UpstreamLost` on an error event."""
    for line in event.split(b"\n"):
        if line.startswith(b"event:") and b"error" in line:
            raise UpstreamLost(f"the router ended the stream with an error: {_shown(event)}")
        if line.startswith(b"data:") and not line.endswith(b"[DONE]"):
            return _decoded(line[5:])
    return None


def _decoded(body: bytes) -> Chunk:
    try:
        return decode_chunk(body)
    except msgspec.DecodeError as error:
        raise UpstreamLost(f"the engine's answer cannot be read ({error}): {_shown(body)}") from error


def _status_error(status: int, body: bytes) -> UpstreamNotTaken | UpstreamLost | UpstreamRejected:
    reason = f"the router answered {status}: {_shown(body)}"
    if status in _TRY_LATER:
        return UpstreamNotTaken(reason)
    return UpstreamRejected(_message_in(body) or reason) if 400 <= status < 500 else UpstreamLost(reason)


def _message_in(body: bytes) -> str | None:
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    error = value.get("error") if isinstance(value, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else None


def _shown(body: bytes) -> str:
    return body[:_SHOWN_BYTES].decode(errors="replace")


def _acknowledge_at_once(response: aiohttp.ClientResponse) -> None:
    """Without this, sglang-router's Nagle algorithm waits 40 ms for our delayed ACK once in every stream.

    Setting the option sends the ACK that is due; the kernel forgets it soon, so it is set again after every read.
    """
    connection = response.connection
    transport = connection.transport if connection is not None else None
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
