"""The chat dialect: POST /v1/chat/completions, outbound, in exactly the form that OpenAI clients expect.

Invariant: no chunk and no field that the client did not ask for; usage in a stream only with include_usage; a stream
that ends well ends with [DONE], one that does not ends with an error event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from weir.proxy.chat_request import parse
from weir.proxy.dialect import AnswerStream, CallRequest, Finished, TokenLogprob, Usage
from weir.proxy.errors import CallError

_encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"


class ChatDialect:
    """Chat completions. It holds no state."""

    name = "chat"
    keepalive = b": waiting\n\n"

    def parse(self, body: bytes) -> CallRequest:
        """Read a body. Raises `BadRequest`."""
        return parse(body)

    def answer(self, request: CallRequest, call_id: str, created_s: int, finished: Finished) -> bytes:
        """The body of a call that was not streamed."""
        choice: dict[str, Any] = {
            "index": 0,
            "message": finished.answer.message(),
            "logprobs": _logprobs(finished.logprobs),
            "finish_reason": _finish_reason(finished),
        }
        return _encode(
            {
                "id": completion_id(call_id),
                "object": "chat.completion",
                "created": created_s,
                "model": request.model,
                "choices": [choice],
                "usage": _usage(finished.usage),
            }
        )

    def stream(self, request: CallRequest, call_id: str, created_s: int) -> AnswerStream:
        """The events of one streamed answer."""
        return ChatStream(request, call_id, created_s)

    def error(self, error: CallError) -> bytes:
        """The body of an error."""
        return _encode(error_object(error))


class ChatStream:
    """The events of one streamed answer; the role goes with the first delta."""

    __slots__ = ("_base", "_include_usage", "_started", "_want_logprobs")

    def __init__(self, request: CallRequest, call_id: str, created_s: int) -> None:
        self._base: dict[str, Any] = {
            "id": completion_id(call_id),
            "object": "chat.completion.chunk",
            "created": created_s,
            "model": request.model,
        }
        self._include_usage = request.include_usage
        self._want_logprobs = request.logprobs
        self._started = False

    def delta(self, content: str, reasoning: str, logprobs: Sequence[TokenLogprob] | None) -> bytes:
        """New text; empty bytes where there is none."""
        fields: dict[str, Any] = {}
        if reasoning:
            fields["reasoning_content"] = reasoning
        if content:
            fields["content"] = content
        return self._chunk(fields, None, logprobs) if fields else b""

    def finish(self, rest: tuple[str, str], finished: Finished, logprobs: Sequence[TokenLogprob] | None) -> bytes:
        """What is left of content and reasoning, the tool calls, the finish reason, the usage if asked for, [DONE]."""
        events = [self.delta(*rest, logprobs)]
        if events[0]:
            logprobs = None
        if finished.answer.tool_calls:
            events.append(self._chunk({"tool_calls": _tool_call_deltas(finished)}, None, logprobs))
            logprobs = None
        events.append(self._chunk({}, _finish_reason(finished), logprobs))
        if self._include_usage:
            events.append(_event(self._base | {"choices": [], "usage": _usage(finished.usage)}))
        events.append(DONE)
        return b"".join(events)

    def error(self, error: CallError) -> bytes:
        """An event that SDKs raise as an API error; nothing follows it."""
        return _event(error_object(error))

    def _chunk(
        self, fields: dict[str, Any], finish_reason: str | None, logprobs: Sequence[TokenLogprob] | None
    ) -> bytes:
        if not self._started:
            self._started = True
            fields = {"role": "assistant", "content": ""} | fields
        choice = {"index": 0, "delta": fields, "logprobs": None, "finish_reason": finish_reason}
        if self._want_logprobs and logprobs:
            choice["logprobs"] = _logprobs(logprobs)
        chunk = self._base | {"choices": [choice]}
        if self._include_usage:
            chunk["usage"] = None
        return _event(chunk)


def completion_id(call_id: str) -> str:
    """The `id` that the client sees, which names the call."""
    return "chatcmpl-" + call_id.removeprefix("call_")


def error_object(error: CallError) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}


def models_body(names: Sequence[str], created_s: int, only: str | None = None) -> bytes:
    """The body of GET /v1/models, or of GET /v1/models/{only}."""
    models = [{"id": name, "object": "model", "created": created_s, "owned_by": "weir"} for name in names]
    if only is not None:
        return _encode(next(model for model in models if model["id"] == only))
    return _encode({"object": "list", "data": models})


def _event(payload: dict[str, Any]) -> bytes:
    return b"data: " + _encode(payload) + b"\n\n"


def _finish_reason(finished: Finished) -> str:
    return "tool_calls" if finished.answer.tool_calls and finished.reason == "stop" else finished.reason


def _tool_call_deltas(finished: Finished) -> list[dict[str, Any]]:
    return [
        {
            "index": i,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for i, call in enumerate(finished.answer.tool_calls)
    ]


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _logprobs(tokens: Sequence[TokenLogprob] | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    content = [
        {"token": t.text, "logprob": t.logprob, "bytes": list(t.text.encode()), "top_logprobs": []} for t in tokens
    ]
    return {"content": content, "refusal": None}
