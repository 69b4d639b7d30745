"""The responses dialect: POST /v1/responses, outbound, in exactly the form that OpenAI clients expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import AnswerStream, CallRequest, Finished
from weir.proxy.conversation.parsed_history import Beginnings
from weir.proxy.dialects.responses_object import call_item, message_item, reasoning_item, response_object
from weir.proxy.dialects.responses_request import parse
from weir.proxy.dialects.responses_stream import ResponsesStream
from weir.proxy.dialects.responses_tools import call_fields
from weir.proxy.errors import CallError, error_object

_encode = msgspec.json.Encoder().encode


class ResponsesDialect:
    """Responses. Its state is the beginnings of inputs that it parsed recently; `ResponseCache` keeps responses."""

    name = "responses"
    keepalive = b": waiting\n\n"

    def __init__(self) -> None:
        self._beginnings = Beginnings()

    def parse(self, body: bytes, headers: Mapping[str, str]) -> CallRequest:
        """Parse a body. Raises `BadRequest`."""
        return parse(body, headers, self._beginnings)

    def answer(self, request: CallRequest, call_id: str, created_s: int, finished: Sequence[Finished]) -> bytes:
        """The body of a call that was not streamed."""
        (one,) = finished
        return _encode(
            response_object(request, call_id, created_s, output=_output(request, call_id, one), finished=one)
        )

    def stream(self, request: CallRequest, call_id: str, created_s: int) -> AnswerStream:
        """The events of one streamed answer."""
        return ResponsesStream(request, call_id, created_s)

    def error(self, error: CallError) -> bytes:
        """The body of an error."""
        return _encode(error_object(error))


def _output(request: CallRequest, call_id: str, finished: Finished) -> list[dict[str, Any]]:
    answer = finished.answer
    status = "incomplete" if finished.reason == "length" else "completed"
    items: list[dict[str, Any]] = []
    if answer.reasoning:
        items.append(reasoning_item(call_id, len(items), answer.reasoning, status="completed"))
    if answer.content or not answer.tool_calls:
        items.append(message_item(call_id, len(items), answer.content, finished.logprobs, status=status))
    named = call_fields(request.echo.get("tools", ()))
    for call in answer.tool_calls:
        items.append(call_item(call_id, len(items), call, call.arguments, named, status="completed"))
    return items
