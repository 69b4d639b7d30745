"""The HTTP client of the engines: POST /generate on the router for each piece of a call, as a stream of chunks.

Invariant: what is raised tells whether an engine may have seen the piece: `UpstreamNotTaken` (no), `UpstreamLost`
(yes, or perhaps), `UpstreamRejected` (it refused the content). A stream without a finish reason is lost, even if it
ends with [DONE], as smg's does when a worker dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import zlib
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any

import aiohttp
import msgspec

from weir.proxy.config import ProxyConfig
from weir.proxy.engines.capture import Chunk, decode_chunk, decode_chunks
from weir.proxy.engines.connections import control_session
from weir.proxy.engines.http_client import Answer, Buffer, HttpClient
from weir.proxy.engines.router_routes import Worker, decode_workers, workers_url
from weir.proxy.errors import UpstreamLost, UpstreamNotReached, UpstreamNotTaken, UpstreamRejected

_encode = msgspec.json.Encoder().encode
TRY_LATER = frozenset({408, 425, 429, 503})
NO_WORKER = "No worker available"  # smg's word, with a 400, while its health checks have taken all engines out
_SHOWN_BYTES = 500
_CONTROL_TIMEOUT = aiohttp.ClientTimeout(total=2)

logger = logging.getLogger("weir.proxy.engines.client")


class Upstream:
    """A session of connections to one router."""

    def __init__(self, url: str, config: ProxyConfig) -> None:
        self.url = url.rstrip("/")
        self._stream_interval_s = config.stream_interval_ms / 1000
        self.connections = HttpClient(
            connect_timeout_s=config.connect_timeout_s, answer_timeout_s=config.answer_timeout_s
        )
        self._router = self.connections.origin(self.url, f"router at {self.url}")
        self._session = control_session(config)

    async def close(self) -> None:
        """Close all connections."""
        await self.connections.close()
        await self._session.close()

    async def generate(
        self, body: Sequence[Buffer], stream: bool, routing_key: str, *, past_router: bool = False
    ) -> AsyncGenerator[list[Chunk], None]:
        """Send one piece, its body in parts, and yield chunks as they come, those that came together as one list.

        `past_router`: to an engine in the router's rotation itself, by the routing key. The last chunk has a finish
        reason. Closing the generator drops the connection. Raises `UpstreamNotTaken`, `UpstreamLost` or
        `UpstreamRejected`.
        """
        headers = {"Content-Type": "application/json", "x-smg-routing-key": routing_key}
        origin = self._router
        if past_router:
            engine = await self._engine_of(routing_key)
            origin = self.connections.origin(engine, f"engine at {engine}")
        async with self.connections.request(origin, "POST", "/generate", headers, *body) as answer:
            if answer.status != 200:
                raise _status_error(answer.status, await answer.read())
            if stream:
                async for chunks in _streamed_chunks(answer, self._stream_interval_s):
                    yield chunks
            else:
                yield [_decoded(await answer.read())]

    async def _engine_of(self, routing_key: str) -> str:
        """The engine to which calls with this key go, the same while it is in rotation; an engine that is no router.

        Raises `UpstreamNotTaken` where none is in rotation.
        """
        try:
            async with self._session.get(workers_url(self.url), timeout=_CONTROL_TIMEOUT) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise UpstreamNotReached(f"cannot ask the {self._router.name} for its engines: {error!r}") from error
        if response.status in TRY_LATER:
            raise UpstreamNotTaken(f"the router answered {response.status}: {_shown(body)}")
        workers = decode_workers(body) if response.status == 200 else None
        if workers is None:
            return self.url
        urls = [worker.url for worker in workers if worker.is_healthy]
        if not urls:
            raise UpstreamNotTaken(f"no engine is in rotation at the router at {self.url}")
        return max(urls, key=lambda url: zlib.crc32(f"{routing_key} {url}".encode()))

    async def has_workers(self) -> bool:
        """Whether the router answers and has a healthy engine."""
        return any(worker.is_healthy for worker in await self._workers() or ())

    async def continue_engines(self, *, asleep: Collection[str] = ()) -> None:
        """Let every engine of the router continue: the publisher that paused them is gone, and calls wait in them.

        But for those that hold no memory: the watch brings them weights first. Raises `UpstreamNotReached` where the
        router does not answer.
        """
        workers = await self._workers()
        if workers is None:
            raise UpstreamNotReached(f"the {self._router.name} does not name its engines")
        for worker in workers:
            if worker.url in asleep:
                continue
            url = f"{worker.url}/continue_generation"
            try:
                async with self._session.post(url, json={}, timeout=_CONTROL_TIMEOUT) as response:
                    status = response.status
            except (aiohttp.ClientError, TimeoutError) as error:
                logger.warning("an engine that may be paused cannot be reached: POST %s: %r", url, error)
            else:
                logger.log(logging.INFO if status == 200 else logging.WARNING, "POST %s answered %d", url, status)

    async def grammar_backends(self) -> frozenset[str]:
        """What the engines that say so keep grammars with; a router that lists none is the engine itself."""
        backends = [(info or {}).get("grammar_backend") for info in await self._of_engines("/server_info") or ()]
        return frozenset(backend for backend in backends if isinstance(backend, str))

    async def server_infos(self) -> list[dict[str, Any]] | None:
        """What the engines say of themselves, {} for one that says nothing; None unless all engines answer."""
        answers = await self._of_engines("/server_info")
        found = [answer for answer in answers or () if answer is not None]
        return found if answers and len(found) == len(answers) else None

    async def context_lengths(self) -> list[int] | None:
        """The context lengths that the engines name, as SGLang and vLLM list them; None unless all engines answer."""
        answers = await self._of_engines("/v1/models")
        lengths: list[int] = []
        if not answers:
            return None
        for answer in answers:
            if answer is None:
                return None
            lengths += _lengths_in(answer)
        return lengths

    async def _of_engines(self, path: str) -> list[dict[str, Any] | None] | None:
        """What each engine answers to a GET, {} where that is no object, None where it does not answer.

        What is no router is the engine itself. None where the router does not answer.
        """
        body = await self._body_at(workers_url(self.url))
        if body is None:
            return None
        workers = decode_workers(body)
        urls = [self.url] if workers is None else [worker.url for worker in workers]
        return await asyncio.gather(*(self._object_at(f"{url}{path}") for url in urls))

    async def _object_at(self, url: str) -> dict[str, Any] | None:
        body = await self._body_at(url)
        try:
            found = msgspec.json.decode(body) if body else None
        except msgspec.DecodeError:
            found = None
        return None if body is None else found if isinstance(found, dict) else {}

    async def _workers(self) -> list[Worker] | None:
        """The router's engines, none where it is no router; None where it does not answer."""
        body = await self._body_at(workers_url(self.url))
        return None if body is None else decode_workers(body) or []

    async def _body_at(self, url: str) -> bytes | None:
        """What is to be had at a URL, b"" where nothing is; None where the server does not answer, or cannot now."""
        try:
            async with self._session.get(url, timeout=_CONTROL_TIMEOUT) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            return None
        if response.status in TRY_LATER or response.status >= 500:
            return None
        return body if response.status == 200 else b""


def _lengths_in(models: dict[str, Any]) -> list[int]:
    """The context lengths in an engine's list of models."""
    cards = models.get("data")
    lengths = [card.get("max_model_len") for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
    return [length for length in lengths if type(length) is int and length > 0]  # a bool is no length


async def _streamed_chunks(answer: Answer, interval_s: float) -> AsyncGenerator[list[Chunk], None]:
    """The chunks of an event stream, up to the one that finishes. Raises `UpstreamLost` where none does.

    The first come at once; later ones with what else came within as long as the stream has run so far, so that a short
    answer is not held up; in the end all that came between two ticks of `interval_s`.
    """
    rest, first_s = b"", 0.0
    answer.acknowledge_at_once()
    data = await answer.part()
    while data:
        answer.acknowledge_at_once()
        *events, rest = (rest + data).split(b"\n\n")
        chunks = chunks_of(events)
        age_s = 0.0
        if chunks:
            yield chunks
            if chunks[-1].meta_info.finish_reason is not None:
                return
            now_s = time.monotonic()
            first_s = first_s or now_s
            age_s = now_s - first_s
        ticks = interval_s > 0 and age_s >= interval_s
        data = await (answer.part_at_tick(interval_s) if ticks else answer.part_after(min(age_s, interval_s)))
    raise UpstreamLost("the engine's stream ended without a finish reason")


def chunks_of(events: list[bytes]) -> list[Chunk]:
    """The chunks in some events, which are decoded at once. Raises `UpstreamLost` on an error event."""
    texts = [text for text in map(_data_of, events) if text is not None]
    if len(texts) < 2:
        return [_decoded(text) for text in texts]
    with contextlib.suppress(msgspec.DecodeError):
        chunks = decode_chunks(b"[" + b",".join(texts) + b"]")
        if len(chunks) == len(texts):
            return chunks
    return [_decoded(text) for text in texts]  # raises with the one that cannot be read


def _data_of(event: bytes) -> bytes | None:
    """The data of one event; None for comments and [DONE]. Raises `UpstreamLost` on an error event."""
    for line in event.split(b"\n"):
        if line.startswith(b"event:") and b"error" in line:
            raise UpstreamLost(f"the router ended the stream with an error: {_shown(event)}")
        if line.startswith(b"data:") and not line.endswith(b"[DONE]"):
            return line[5:]
    return None


def _decoded(body: bytes) -> Chunk:
    try:
        return decode_chunk(body)
    except msgspec.DecodeError as error:
        raise UpstreamLost(f"the engine's answer cannot be read ({error}): {_shown(body)}") from error


def _status_error(status: int, body: bytes) -> UpstreamNotTaken | UpstreamLost | UpstreamRejected:
    reason = f"the router answered {status}: {_shown(body)}"
    message = _message_in(body)
    if status in TRY_LATER or (message is not None and message.startswith(NO_WORKER)):
        return UpstreamNotTaken(reason)
    return UpstreamRejected(message or reason) if 400 <= status < 500 else UpstreamLost(reason)


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
