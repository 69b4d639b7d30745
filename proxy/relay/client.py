"""The HTTP client of relayed requests, which also reads what the engines behind the upstream report.

What `relay` raises tells whether the upstream may have seen the request (`engines/http_client.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
import msgspec

from weir.proxy.config import ProxyConfig
from weir.proxy.engines.connections import control_session
from weir.proxy.engines.http_client import Answer, HttpClient, Request
from weir.proxy.engines.router_routes import workers_of, workers_url

_CONTROL_TIMEOUT = aiohttp.ClientTimeout(total=2)
_POST_TIMEOUT = aiohttp.ClientTimeout(total=30)


class RelayUpstream:
    """A session of connections to one host: a router, an engine, or any other."""

    def __init__(self, url: str, config: ProxyConfig) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.connections = HttpClient(
            connect_timeout_s=config.connect_timeout_s, answer_timeout_s=config.answer_timeout_s
        )
        self._origin = self.connections.origin(self.url, f"upstream at {self.url}")
        self._session = control_session(config)

    async def close(self) -> None:
        """Close all connections."""
        await self.connections.close()
        await self._session.close()

    def relay(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Request:
        """Relay a request as it is; `target` is path and query. Leaving the block early drops the connection.

        Entering it raises `UpstreamNotReached` or `UpstreamLost`, and so does reading the answer.
        """
        return self.connections.request(self._origin, method, target, headers, body)

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


async def arriving(answer: Answer) -> AsyncGenerator[bytes, None]:
    """The parts of a streamed answer as they come."""
    while True:
        answer.acknowledge_at_once()
        data = await answer.part()
        if not data:
            return
        yield data
