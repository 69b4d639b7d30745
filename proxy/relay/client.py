"""The HTTP client of relayed requests, which also reads what the engines behind the upstream report.

Invariant: what is raised tells whether the upstream may have seen the request: `UpstreamNotReached` (no),
`UpstreamLost` (yes, or perhaps).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from weir.proxy.config import ProxyConfig
from weir.proxy.engines.connections import Connections, open_session
from weir.proxy.engines.router_routes import workers_of, workers_url
from weir.proxy.errors import UpstreamLost, UpstreamNotReached

_CONTROL_TIMEOUT = aiohttp.ClientTimeout(total=2)
_POST_TIMEOUT = aiohttp.ClientTimeout(total=30)


class RelayUpstream:
    """A session of connections to one host: a router, an engine, or any other."""

    def __init__(self, url: str, config: ProxyConfig) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.connections = Connections()
        self._session = open_session(
            config, self.connections, ("User-Agent", "Accept-Encoding", "Accept", "Content-Type")
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    @contextlib.asynccontextmanager
    async def relay(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Relay a request as it is; `target` is path and query. Leaving the block early drops the connection.

        Raises `UpstreamNotReached` or `UpstreamLost`.
        """
        url = URL(self.url + target, encoded=True)
        with self._translated_errors():
            async with self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False
            ) as response:
                yield response

    async def is_there(self) -> bool:
        """Whether the upstream answers, with whatever status below 500."""
        try:
            async with self._session.get(f"{self.url}/v1/models", timeout=_CONTROL_TIMEOUT) as response:
                return response.status < 500
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def versions(self) -> set[str | None]:
        """The weight versions that the engines report; None for those that report none."""
        reported = [info.get("weight_version") for info in await self.model_info()]
        return {None if version is None else str(version) for version in reported}

    async def model_info(self) -> list[dict[str, Any]]:
        """The /model_info of every engine; empty for one without that route.

        Routers do not forward /model_info, so engines are asked directly.
        """
        urls = await self.engine_urls()
        return list(await asyncio.gather(*(self._object(f"{url}/model_info") for url in urls)))

    async def engine_urls(self) -> list[str]:
        """The engines that a router lists; an upstream that lists none is the engine itself."""
        return await self.listed_engines() or [self.url]

    async def listed_engines(self) -> list[str] | None:
        """The engines that a router lists; None where it is no router."""
        workers = workers_of(await self._object(workers_url(self.url)))
        return None if workers is None else [worker.url for worker in workers]

    async def post(self, url: str, body: bytes) -> int | None:
        """POST JSON to an engine directly; the status, or None where it does not answer."""
        try:
            headers = {"content-type": "application/json"}
            async with self._session.post(url, data=body, headers=headers, timeout=_POST_TIMEOUT) as response:
                return response.status
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def _object(self, url: str) -> dict[str, Any]:
        """The JSON object at a URL; empty where there is none."""
        try:
            async with self._session.get(url, timeout=_CONTROL_TIMEOUT) as response:
                value = msgspec.json.decode(await response.read()) if response.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return {}
        return value if isinstance(value, dict) else {}

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except aiohttp.ClientConnectorError as error:
            raise UpstreamNotReached(f"cannot connect to {self.url}: {error.strerror}") from error
        except aiohttp.ConnectionTimeoutError as error:
            raise UpstreamNotReached(f"{self.url} does not accept connections") from error
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise UpstreamLost(f"the connection to {self.url} ended before the answer did: {error!r}") from error


async def arriving(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """The parts of a streamed answer as they come."""
    connection = response.connection
    transport = connection.transport if connection is not None else None
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is not None and sock.family not in (socket.AF_INET, socket.AF_INET6):
        sock = None
    while True:
        if sock is not None:  # else sglang-router's Nagle algorithm waits 40 ms for our delayed ACK; lasts one read
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        data = await response.content.readany()
        if not data:
            return
        yield data
