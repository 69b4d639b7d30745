"""The completions dialect, both ways: a body of POST /v1/completions becomes a `CallRequest` with raw prompts, and
answers take OpenAI's legacy form.

Invariants: every field of a body is honoured, known to be harmless, or refused with a `BadRequest` that names it;
choices are numbered prompt by prompt, the answers to one prompt next to each other; no chunk and no field is sent that
the client did not ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import (
    AnswerStream,
    CallRequest,
    Delta,
    Finished,
    Raw,
    TokenLogprob,
    Usage,
    total_usage,
)
from weir.proxy.dialects.body import (
    ENGINE_SAMPLING,
    bias_in,
    decoded,
    integer,
    kind_of,
    names_in,
    optional,
    refuse_unknown,
    refuse_values,
    required,
    sampling_in,
    session_hint,
    stops_in,
    top_in,
)
from weir.proxy.dialects.chat_answer import DONE, usage_object
from weir.proxy.dialects.chat_request import grammar_in, include_usage
from weir.proxy.errors import BadRequest, CallError, error_object

READ = ENGINE_SAMPLING | {
    *("model", "prompt", "n", "max_tokens", "temperature", "top_p", "stop", "stream", "stream_options", "logprobs"),
    *("response_format", "user", "metadata", "logit_bias"),
}
HARMLESS = frozenset({"store", "service_tier", "safety_identifier", "prompt_cache_key"})
# Fields whose listed values change nothing: any other value is refused.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
}
DEFAULT_MAX_TOKENS = 16  # OpenAI's
MAX_PROMPTS = 256
MAX_ANSWERS = 128
MAX_CALLS = 1024
_MAX_ID = 2**31 - 1


def parse(body: bytes) -> CallRequest:
    """Parse a body. Raises `BadRequest`."""
    fields = decoded(body)
    refuse_unknown(fields, READ | HARMLESS | NEUTRAL.keys())
    refuse_values(fields, NEUTRAL)
    prompts = prompts_in(fields)
    num_answers = integer(fields, "n", low=1, high=MAX_ANSWERS) or 1
    if num_answers * len(prompts) > MAX_CALLS:
        raise BadRequest(f"n times the number of prompts must not be above {MAX_CALLS}.", param="n")
    return CallRequest(
        model=required(fields, "model", str),
        messages=[],
        raw_prompts=prompts,
        num_answers=num_answers,
        stream=optional(fields, "stream", bool) or False,
        include_usage=include_usage(fields),
        logprobs="logprobs" in fields,
        top_logprobs=top_in(fields, "logprobs"),
        sampling=sampling_in(
            fields,
            max_tokens=integer(fields, "max_tokens", low=1) or DEFAULT_MAX_TOKENS,
            stop=stops_in(fields, "stop"),
            extra=bias_in(fields) | grammar_in(fields),
        ),
        session_hint=session_hint(fields),
        agent_ids=names_in(fields, "user"),
    )


def prompts_in(fields: dict[str, Any]) -> tuple[Raw, ...]:
    """The prompts of a body: each a text or a list of token ids. Raises `BadRequest`."""
    given = fields.get("prompt")
    if given is None:
        raise BadRequest("you must provide prompt.", param="prompt", code="missing_required_parameter")
    is_one = isinstance(given, str) or (isinstance(given, list) and bool(given) and type(given[0]) is int)
    prompts = [given] if is_one else given
    if not isinstance(prompts, list):
        raise BadRequest(f"prompt must be a string or a list, not {kind_of(given)}.", param="prompt")
    if not 0 < len(prompts) <= MAX_PROMPTS:
        raise BadRequest(f"prompt must hold 1 to {MAX_PROMPTS} prompts, not {len(prompts)}.", param="prompt")
    return tuple(_checked(prompt, "prompt" if is_one else f"prompt[{i}]") for i, prompt in enumerate(prompts))


def _checked(prompt: Any, where: str) -> Raw:
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(n) is int and 0 <= n <= _MAX_ID for n in prompt):
        return prompt
    raise BadRequest(f"{where} must be a non-empty string or a non-empty list of token ids.", param=where)


_encode = msgspec.json.Encoder().encode


class CompletionsDialect:
    """Completions. It holds no state."""

    name = "completions"
    keepalive = b": waiting\n\n"

    def parse(self, body: bytes, headers: Mapping[str, str]) -> CallRequest:
        """Parse a body. Raises `BadRequest`."""
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
        """Nothing; the first text opens a choice."""
        return b""

    def delta(self, choice: int, delta: Delta) -> bytes:
        """One chunk."""
        return self._chunk(choice, delta, None)

    def finish(self, choice: int, rest: Delta, finished: Finished) -> bytes:
        """The rest of the text, with the finish reason."""
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
        part = _choice(choice, delta.content, _logprobs(delta.logprobs, offset), finish_reason)
        chunk = self._base | {"choices": [part]}
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
    """The legacy form: parallel lists; `text_offset` counts characters of the answer's text."""
    if tokens is None:
        return None
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_likeliest(token) for token in tokens] if any(token.top for token in tokens) else None,
        "text_offset": offsets,
    }


def _likeliest(token: TokenLogprob) -> dict[str, float]:
    """Logprobs by text, the token's own included; of several tokens with one text the likeliest counts."""
    found: dict[str, float] = {}
    for text, logprob in token.top:
        found.setdefault(text, logprob)
    found.setdefault(token.text, token.logprob)
    return found


def _event(payload: dict[str, Any]) -> bytes:
    return b"data: " + _encode(payload) + b"\n\n"
