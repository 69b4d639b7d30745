"""A few lines of ASGI: a body read whole, a JSON answer, a table of routes. Nothing here knows what is served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Handler = Callable[[bytes, Receive, Send], Awaitable[None]]

_encode = msgspec.json.Encoder().encode


class ClientGone(ConnectionError):
    """The client left before its request was read."""


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def send_json(send: Send, content: Any, status: int = 200) -> None:
    """Answer with JSON."""
    await send_bytes(send, _encode(content), "application/json", status)


async def send_bytes(send: Send, body: bytes, content_type: str, status: int = 200) -> None:
    """Answer with a whole body."""
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, message: str, status: int = 400) -> None:
    """The one error shape of the engine, SGLang's."""
    await send_json(send, {"error": {"message": message}}, status)


def server_sent(content: Any) -> bytes:
    """One server-sent event with JSON in it."""
    return b"data: " + _encode(content) + b"\n\n"


async def answer_lifespan(receive: Receive, send: Send, shutdown: Callable[[], None]) -> None:
    """The server's start and end: `shutdown` runs when it ends."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            shutdown()
            await send({"type": "lifespan.shutdown.complete"})
            return
