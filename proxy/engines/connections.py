"""The HTTP sessions towards routers and engines, which count the connections that calls open and have.

A host that is too busy to accept connections shows here first: its kernel stops answering, and they stay half open.
"""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from weir.proxy.config import ProxyConfig


class Connections(aiohttp.TCPConnector):
    """As many connections as there are requests: `opening` is the number that are not there yet, `in_use` the rest."""

    def __init__(self) -> None:
        super().__init__(limit=0, keepalive_timeout=30)
        self.opening = 0
        self.in_use = 0

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 (aiohttp's own parameter)
    ) -> Connection:
        """A connection for one request, kept or new."""
        self.opening += 1
        try:
            connection = await super().connect(req, traces, timeout)
        finally:
            self.opening -= 1
        self.in_use += 1
        connection.add_callback(self._given_back)
        return connection

    def _given_back(self) -> None:
        self.in_use -= 1


def open_session(config: ProxyConfig, connections: Connections, skip_headers: Sequence[str]) -> aiohttp.ClientSession:
    """A session over these connections that adds none of `skip_headers` by itself."""
    return aiohttp.ClientSession(
        connector=connections,
        timeout=aiohttp.ClientTimeout(
            total=config.answer_timeout_s, sock_connect=config.connect_timeout_s, connect=config.connect_timeout_s
        ),
        auto_decompress=False,
        trust_env=False,
        skip_auto_headers=skip_headers,
    )
