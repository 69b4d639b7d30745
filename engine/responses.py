"""Bodies in SGLang's forms: JSON that comes and goes, errors and server-sent events."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from weir.engine.errors import BadRequest

B = TypeVar("B", bound=msgspec.Struct)
_encode = msgspec.json.Encoder().encode


class JsonResponse(Response):
    """JSON, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return _encode(content)


def error_response(message: str, status: int) -> JsonResponse:
    """The engine's only error shape."""
    return JsonResponse({"error": {"message": message}}, status_code=status)


def server_sent(content: Any) -> bytes:
    """One server-sent event with JSON in it."""
    return b"data: " + _encode(content) + b"\n\n"


async def read_body(request: Request, kind: type[B]) -> B:
    """The body of a request; an empty one has all defaults. Raises `BadRequest`."""
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadRequest(str(error)) from error
