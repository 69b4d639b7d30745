"""The completions dialect: POST /v1/completions, outbound, in OpenAI's old form.

Invariant: choices are numbered prompt by prompt, the answers to one prompt next to each other; no chunk and no field
that the client did not ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weir.proxy.chat import DONE, error_object, usage_object
from weir.proxy.completions_request import parse
from weir.proxy.dialect import AnswerStream, CallRequest, Delta, Finished, TokenLogprob, Usage, total_usage
from weir.proxy.errors import CallError

_encode = msgspec.json.Encoder().encode


class CompletionsDialect:
    """Completions. It holds no state."""

    name = "completions"
    keepalive = b": waiting\n\n"

    def parse(self, body: bytes, headers: Mapping[str, str]) -> CallRequest:
        """Read a body. Raises `BadRequest`."""
        return parse(body)

    def answer(self, request: CallRequest, call_id: str, created_s: int, finished: Sequence[Finished]) -> bytes:
        """The body of a request that was not streamed."""
        choices = [
            _choice(i, one.answer.content, _logprobs(one.logprobs, 0), one.reason) for i, one in enumerate(finished)
        ]
        usage = usage_object(total_usage(finished, request.num_answers))
        return _encode(_envelope(request, call_id, created_s) | {"choices": choices, "usage": usage})

    def stream(self, request: CallRequest, call_id: str, created_s: int) -> AnswerStream:
        """The events of a streamed request."""
        return CompletionsStream(request, call_id, created_s)

    def error(self, error: CallError) -> bytes:
        """The body of an error."""
        return _encode(error_object(error))


class CompletionsStream:
    """The events of one streamed request."""

    __slots__ = ("_base", "_include_usage", "_offsets")

    def __init__(self, request: CallRequest, call_id: str, created_s: int) -> None:
        self._base = _envelope(request, call_id, created_s)
        self._include_usage = request.include_usage
        self._offsets: dict[int, int] = {}  # characters that were sent, by choice

    def open(self, usage: Usage) -> bytes:
        """Nothing: the first text opens a choice."""
        return b""

    def delta(self, choice: int, delta: Delta) -> bytes:
        """One chunk."""
        return self._chunk(choice, delta, None)

    def finish(self, choice: int, rest: Delta, finished: Finished) -> bytes:
        """What is left, with the finish reason."""
        return self._chunk(choice, rest, finished.reason)

    def close(self, usage: Usage) -> bytes:
        """The usage if it was asked for, and [DONE]."""
        if not self._include_usage:
            return DONE
        return _event(self._base | {"choices": [], "usage": usage_object(usage)}) + DONE

    def error(self, error: CallError) -> bytes:
        """An event that SDKs raise as an API error; nothing follows it."""
        return _event(error_object(error))

    def _chunk(self, choice: int, delta: Delta, finish_reason: str | None) -> bytes:
        offset = self._offsets.get(choice, 0)
        self._offsets[choice] = offset + len(delta.content)
        told = _choice(choice, delta.content, _logprobs(delta.logprobs, offset), finish_reason)
        chunk = self._base | {"choices": [told]}
        if self._include_usage:
            chunk["usage"] = None
        return _event(chunk)


def _envelope(request: CallRequest, call_id: str, created_s: int) -> dict[str, Any]:
    return {
        "id": "cmpl-" + call_id.removeprefix("call_"),
        "object": "text_completion",
        "created": created_s,
        "model": request.model,
    }


def _choice(index: int, text: str, logprobs: dict[str, Any] | None, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}


def _logprobs(tokens: Sequence[TokenLogprob] | None, offset: int) -> dict[str, Any] | None:
    """The old form: parallel lists; `text_offset` counts characters of the answer's text."""
    if tokens is None:
        return None
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": None,
        "text_offset": offsets,
    }


def _event(payload: dict[str, Any]) -> bytes:
    return b"data: " + _encode(payload) + b"\n\n"
