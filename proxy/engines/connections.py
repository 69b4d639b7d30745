"""The connections that calls open and have towards routers and engines, counted.

A host that is too busy to accept connections shows here first: its kernel stops answering, and they stay half open.
"""

from __future__ import annotations

import aiohttp

from weir.proxy.config import ProxyConfig


class Connections:
    """As many connections as there are requests: `opening` is the number that are not there yet, `in_use` the rest."""

    def __init__(self) -> None:
        self.opening = 0
        self.in_use = 0


def control_session(config: ProxyConfig) -> aiohttp.ClientSession:
    """A session for what is asked of routers and engines beside calls."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
        timeout=aiohttp.ClientTimeout(
            total=config.answer_timeout_s, sock_connect=config.connect_timeout_s, connect=config.connect_timeout_s
        ),
        trust_env=False,
    )
