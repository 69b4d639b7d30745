"""The messages dialect: POST /v1/messages, outbound, in exactly the form that Anthropic's clients expect.

Invariant: every event has its name; a block is opened once and closed before the next one opens; a stream that ends
well ends with message_stop, one that does not ends with an error event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import AnswerStream, CallRequest, Delta, Finished, ToolCall, Usage
from weir.proxy.conversation.parsed_history import Beginnings
from weir.proxy.dialects.messages_request import NO_THREADS, parse
from weir.proxy.errors import CallError, ContextTooLong

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class MessagesDialect:
    """Anthropic's Messages. Its state is the beginnings of histories that it parsed recently."""

    name = "messages"
    keepalive = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self) -> None:
        self._beginnings = Beginnings()

    def parse(self, body: bytes, headers: Mapping[str, str]) -> CallRequest:
        """Parse a body. Raises `BadRequest`."""
        return parse(body, headers, self._beginnings)

    def answer(self, request: CallRequest, call_id: str, created_s: int, finished: Sequence[Finished]) -> bytes:
        """The body of a call that was not streamed."""
        (one,) = finished
        message = opening(request, call_id, one.usage)
        message["content"] = _content(one, call_id)
        return _encode(message | {"stop_reason": stop_reason(one), "stop_sequence": one.stop_string})

    def stream(self, request: CallRequest, call_id: str, created_s: int) -> AnswerStream:
        """The events of one streamed answer."""
        return MessagesStream(request, call_id)

    def error(self, error: CallError) -> bytes:
        """The body of an error."""
        return _encode(error_object(error))


class MessagesStream:
    """The events of one streamed answer. A block stays open until one of another kind, or the end, comes."""

    __slots__ = ("_call_id", "_finished", "_index", "_open", "_request")

    def __init__(self, request: CallRequest, call_id: str) -> None:
        self._request = request
        self._call_id = call_id
        self._index = -1
        self._open: str | None = None  # the kind of the block that is open
        self._finished: Finished | None = None

    def open(self, usage: Usage) -> bytes:
        """message_start, with the input tokens."""
        return _event({"type": "message_start", "message": opening(self._request, self._call_id, usage)})

    def delta(self, choice: int, delta: Delta) -> bytes:
        """New thinking, text and tool calls, in this order."""
        events = b""
        if delta.reasoning:
            events += self._grow("thinking", {"type": "thinking_delta", "thinking": delta.reasoning})
        if delta.content:
            events += self._grow("text", {"type": "text_delta", "text": delta.content})
        for call in delta.tool_calls:
            events += self._tool_use(call)
        return events

    def finish(self, choice: int, rest: Delta, finished: Finished) -> bytes:
        """The rest of the answer; the last block is closed."""
        self._finished = finished
        return self.delta(choice, rest) + self._close_block()

    def close(self, usage: Usage) -> bytes:
        """The stop reason, the usage, and message_stop."""
        assert self._finished is not None
        end = {"stop_reason": stop_reason(self._finished), "stop_sequence": self._finished.stop_string}
        delta = {"type": "message_delta", "delta": end, "usage": usage_object(usage)}
        return _event(delta) + _event({"type": "message_stop"})

    def error(self, error: CallError) -> bytes:
        """An event that SDKs raise as an API error; nothing follows it."""
        return _event(error_object(error))

    def _grow(self, kind: str, delta: dict[str, Any]) -> bytes:
        opened = b"" if self._open == kind else self._open_block(_EMPTY[kind])
        return opened + _event({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _tool_use(self, call: ToolCall) -> bytes:
        events = self._open_block({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
        delta = {"type": "input_json_delta", "partial_json": _encode(_input(call)).decode()}
        return events + _event({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _open_block(self, block: dict[str, Any]) -> bytes:
        closed = self._close_block()
        self._index += 1
        self._open = block["type"]
        return closed + _event({"type": "content_block_start", "index": self._index, "content_block": block})

    def _close_block(self) -> bytes:
        if self._open is None:
            return b""
        events = b""
        if self._open == "thinking":
            signed = {"type": "signature_delta", "signature": self._call_id}
            events = _event({"type": "content_block_delta", "index": self._index, "delta": signed})
        self._open = None
        return events + _event({"type": "content_block_stop", "index": self._index})


def opening(request: CallRequest, call_id: str, usage: Usage) -> dict[str, Any]:
    """A message without content, as its stream begins."""
    return {
        "id": "msg_" + call_id.removeprefix("call_"),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_object(usage),
    }


def usage_object(usage: Usage) -> dict[str, int]:
    """Anthropic's usage, which counts input read from the cache apart from other input."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def stop_reason(finished: Finished) -> str:
    """The reason why an answer ended, by Anthropic's names."""
    if finished.reason == "length":
        return "max_tokens"
    if finished.stop_string is not None:
        return "stop_sequence"
    return "tool_use" if finished.answer.tool_calls else "end_turn"


def error_object(error: CallError) -> dict[str, Any]:
    """Anthropic's error object. Clients compact their history when they read "prompt is too long"."""
    kind = ERROR_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    too_long = isinstance(error, ContextTooLong)
    message = f"prompt is too long: {error.message}" if too_long else error.message
    fields: dict[str, Any] = {"type": kind, "message": message}
    if error.code == NO_THREADS:
        fields["details"] = {"error_code": NO_THREADS, "unsupported": [error.param]}
    return {"type": "error", "error": fields, "request_id": None}


def count_body(num_tokens: int) -> bytes:
    """The body of POST /v1/messages/count_tokens."""
    return _encode({"input_tokens": num_tokens})


def models_body(names: Sequence[str], created_s: int, max_model_len: int, only: str | None = None) -> bytes:
    """The body of GET /v1/models, or of GET /v1/models/{only}."""
    created_at = datetime.fromtimestamp(created_s, UTC).isoformat().replace("+00:00", "Z")
    about = {"created_at": created_at, "max_input_tokens": max_model_len, "max_tokens": max_model_len}
    models = [{"type": "model", "id": name, "display_name": name} | about for name in names]
    if only is not None:
        return _encode(next(model for model in models if model["id"] == only))
    return _encode({"data": models, "has_more": False, "first_id": names[0], "last_id": names[-1]})


_EMPTY: dict[str, dict[str, Any]] = {
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
    "text": {"type": "text", "text": ""},
}


def _event(payload: dict[str, Any]) -> bytes:
    name: str = payload["type"]
    return b"event: " + name.encode() + b"\ndata: " + _encode(payload) + b"\n\n"


def _content(finished: Finished, call_id: str) -> list[dict[str, Any]]:
    answer = finished.answer
    blocks: list[dict[str, Any]] = []
    if answer.reasoning:
        blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": call_id})
    if answer.content:
        blocks.append({"type": "text", "text": answer.content})
    for call in answer.tool_calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)})
    return blocks


def _input(call: ToolCall) -> dict[str, Any]:
    """A tool call's arguments as the object that clients rely on, whatever the model wrote."""
    try:
        value = _decode(call.arguments)
    except (msgspec.DecodeError, RecursionError):
        value = call.arguments
    return value if isinstance(value, dict) else {"arguments": value}
