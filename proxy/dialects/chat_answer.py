"""The chat dialect: POST /v1/chat/completions, outbound, in exactly the form that OpenAI clients expect.

Invariant: no chunk and no field that the client did not ask for; usage in a stream only with include_usage; a stream
that ends well ends with [DONE], one that does not ends with an error event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import (
    NOTHING,
    AnswerStream,
    CallRequest,
    Delta,
    Finished,
    TokenLogprob,
    ToolCall,
    Usage,
    total_usage,
)
from weir.proxy.conversation.parsed_history import Beginnings
from weir.proxy.dialects.body import likeliest
from weir.proxy.dialects.chat_request import parse
from weir.proxy.errors import CallError, error_object

_encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"


class ChatDialect:
    """Chat completions. Its state is the beginnings of histories that it parsed recently."""

    name = "chat"
    keepalive = b": waiting\n\n"

    def __init__(self) -> None:
        self._beginnings = Beginnings()

    def parse(self, body: bytes, headers: Mapping[str, str]) -> CallRequest:
        """Parse a body. Raises `BadRequest`."""
        return parse(body, self._beginnings)

    def answer(self, request: CallRequest, call_id: str, created_s: int, finished: Sequence[Finished]) -> bytes:
        """The body of a call that was not streamed."""
        return _encode(
            {
                "id": completion_id(call_id),
                "object": "chat.completion",
                "created": created_s,
                "model": request.model,
                "choices": [_choice(i, one) for i, one in enumerate(finished)],
                "usage": usage_object(total_usage(finished, request.num_answers)),
            }
        )

    def stream(self, request: CallRequest, call_id: str, created_s: int) -> AnswerStream:
        """The events of one streamed answer."""
        return ChatStream(request, call_id, created_s)

    def error(self, error: CallError) -> bytes:
        """The body of an error."""
        return _encode(error_object(error))


class ChatStream:
    """The events of one streamed request; the role goes with the first delta of each choice."""

    __slots__ = ("_base", "_include_usage", "_num_calls", "_want_logprobs")

    def __init__(self, request: CallRequest, call_id: str, created_s: int) -> None:
        self._base: dict[str, Any] = {
            "id": completion_id(call_id),
            "object": "chat.completion.chunk",
            "created": created_s,
            "model": request.model,
        }
        self._include_usage = request.include_usage
        self._want_logprobs = request.logprobs
        self._num_calls: dict[int, int] = {}  # tool calls that were sent, by choice; a choice is in it once it began

    def open(self, usage: Usage) -> bytes:
        """Nothing; the first delta opens a choice."""
        return b""

    def delta(self, choice: int, delta: Delta) -> bytes:
        """One chunk."""
        fields: dict[str, Any] = {}
        if delta.reasoning:
            fields["reasoning_content"] = delta.reasoning
        if delta.content:
            fields["content"] = delta.content
        if delta.tool_calls:
            start = self._num_calls.get(choice, 0)
            fields["tool_calls"] = [{"index": start + i} | _tool_call(c) for i, c in enumerate(delta.tool_calls)]
        return self._chunk(choice, fields, None, delta) if fields else b""

    def finish(self, choice: int, rest: Delta, finished: Finished) -> bytes:
        """The rest of the answer, and a chunk with the finish reason."""
        data = self.delta(choice, rest)
        return data + self._chunk(choice, {}, _finish_reason(finished), NOTHING if data else rest)

    def close(self, usage: Usage) -> bytes:
        """The usage if it was asked for, and [DONE]."""
        if not self._include_usage:
            return DONE
        return _event(self._base | {"choices": [], "usage": usage_object(usage)}) + DONE

    def error(self, error: CallError) -> bytes:
        """An event that SDKs raise as an API error; nothing follows it."""
        return _event(error_object(error))

    def _chunk(self, choice: int, fields: dict[str, Any], finish_reason: str | None, delta: Delta) -> bytes:
        if choice not in self._num_calls:
            self._num_calls[choice] = 0
            fields = {"role": "assistant", "content": ""} | fields
        self._num_calls[choice] += len(delta.tool_calls)
        part = {"index": choice, "delta": fields, "logprobs": None, "finish_reason": finish_reason}
        if self._want_logprobs and delta.logprobs:
            part["logprobs"] = _logprobs(delta.logprobs)
        chunk = self._base | {"choices": [part]}
        if self._include_usage:
            chunk["usage"] = None
        return _event(chunk)


def completion_id(call_id: str) -> str:
    """The `id` that the client sees, which names the call."""
    return "chatcmpl-" + call_id.removeprefix("call_")


def models_body(names: Sequence[str], created_s: int, max_model_len: int, only: str | None = None) -> bytes:
    """The body of GET /v1/models, or of GET /v1/models/{only}; the context length is named as vLLM does."""
    about = {"object": "model", "created": created_s, "owned_by": "weir", "max_model_len": max_model_len}
    models = [{"id": name} | about for name in names]
    if only is not None:
        return _encode(next(model for model in models if model["id"] == only))
    return _encode({"object": "list", "data": models})


def _event(payload: dict[str, Any]) -> bytes:
    return b"data: " + _encode(payload) + b"\n\n"


def _finish_reason(finished: Finished) -> str:
    return "tool_calls" if finished.answer.tool_calls and finished.reason == "stop" else finished.reason


def _choice(index: int, finished: Finished) -> dict[str, Any]:
    return {
        "index": index,
        "message": finished.answer.message(),
        "logprobs": _logprobs(finished.logprobs),
        "finish_reason": _finish_reason(finished),
    }


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def usage_object(usage: Usage) -> dict[str, Any]:
    """OpenAI's usage of completions."""
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
        {"token": t.text, "logprob": t.logprob, "bytes": list(t.text.encode()), "top_logprobs": likeliest(t)}
        for t in tokens
    ]
    return {"content": content, "refusal": None}
