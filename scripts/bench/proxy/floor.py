"""The floor of a proxy in Python: raw ASGI under uvicorn, aiohttp towards the router, and nothing between them.

It takes a body, sends it on as it is, and gives back what comes: no parsing, no record, no retry.
"""

from __future__ import annotations

from typing import Any

import aiohttp

_HEADERS = {"content-type": "application/json"}


class Floor:
    """The ASGI application."""

    def __init__(self, upstream_url: str) -> None:
        self._url = upstream_url
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/health":
            status, data = 200, b"{}"
        else:
            status, data = await self._passed_on(scope["path"], await _body(receive))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    async def _passed_on(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._session is None:  # needs the running loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                skip_auto_headers=("User-Agent", "Accept-Encoding", "Accept"),
                auto_decompress=False,
            )
        async with self._session.post(self._url + path, data=body, headers=_HEADERS) as response:
            return response.status, await response.read()


async def _body(receive: Any) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def serve(port: int, upstream_url: str) -> None:
    """Serve until killed."""
    import uvicorn

    uvicorn.run(
        Floor(upstream_url),
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        access_log=False,
        lifespan="off",
        log_level="warning",
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )


if __name__ == "__main__":
    import sys

    serve(int(sys.argv[1]), sys.argv[2])
