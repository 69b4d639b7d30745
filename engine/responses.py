"""Responses in SGLang's forms: JSON, errors and server-sent events."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

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
