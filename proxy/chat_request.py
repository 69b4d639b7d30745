"""Chat completions, inbound: a body of POST /v1/chat/completions becomes a `CallRequest`.

Invariant: every field is honoured, known to be harmless, or refused with a 400 that names it; nothing is dropped
silently. No input makes it raise anything but `BadRequest`. Not here: what answers look like (chat.py).
"""

from __future__ import annotations

from typing import Any

import msgspec

from weir.proxy.chat_messages import messages_in, tools_in
from weir.proxy.dialect import CallRequest, Sampling, ToolUse
from weir.proxy.errors import BadRequest
from weir.proxy.json_fields import integer, kind_of, number, optional, required, shown

HARMLESS = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
    }
)
READ = frozenset(
    {
        "model",
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "stream",
        "stream_options",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "stop",
        "logprobs",
        "top_logprobs",
        "response_format",
        "logit_bias",
        "modalities",
        "frequency_penalty",
        "presence_penalty",
        "min_p",
        "repetition_penalty",
        "ignore_eos",
    }
)
# Fields with a value that asks for nothing: any other value is refused.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "response_format": ({"type": "text"},),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "top_logprobs": (0,),
    "n": (1,),
}
MAX_STOPS = 16

_decode = msgspec.json.Decoder().decode


def parse(body: bytes) -> CallRequest:
    """Read a body. Raises `BadRequest`."""
    fields = _decoded(body)
    _refuse_unserved(fields)
    metadata = optional(fields, "metadata", dict) or {}
    user = optional(fields, "user", str)
    hint = metadata.get("session_id")
    return CallRequest(
        model=required(fields, "model", str),
        messages=messages_in(fields),
        tools=tools_in(fields),
        tool_use=_tool_use(fields),
        stream=optional(fields, "stream", bool) or False,
        include_usage=_include_usage(fields),
        logprobs=optional(fields, "logprobs", bool) or False,
        sampling=_sampling(fields),
        session_hint=hint if isinstance(hint, str) else user,
        agent_ids=_agent_ids(metadata, user),
    )


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        fields = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"The body is not valid JSON: {error or 'nested too deeply'}", code="invalid_json") from error
    if not isinstance(fields, dict):
        raise BadRequest(f"The body must be a JSON object, not {kind_of(fields)}.")
    return {name: value for name, value in fields.items() if value is not None}


def _refuse_unserved(fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        if name in NEUTRAL:
            if value not in NEUTRAL[name] or type(value) is not type(NEUTRAL[name][0]):
                raise _unsupported(name, value)
        elif name not in READ and name not in HARMLESS:
            raise BadRequest(
                f"Unrecognized or unsupported field: {name}. Leave it out; it would be ignored otherwise.",
                param=name,
                code="unsupported_parameter",
            )


def _unsupported(name: str, value: Any) -> BadRequest:
    if name == "n" and (type(value) is not int or value < 1):
        return BadRequest(f"n must be a positive integer, not {shown(value)}.", param="n", code="invalid_value")
    allowed = " or ".join(shown(item) for item in NEUTRAL[name])
    return BadRequest(
        f"{name} = {shown(value)} is not supported here; leave it out or send {allowed}.",
        param=name,
        code="unsupported_parameter",
    )


def _tool_use(fields: dict[str, Any]) -> ToolUse:
    choice = fields.get("tool_choice", "auto")
    if choice not in ("auto", "none"):
        raise BadRequest(
            f"tool_choice = {shown(choice)} is not supported: the model cannot be forced to call a tool here; "
            'send "auto" or "none".',
            param="tool_choice",
            code="unsupported_parameter",
        )
    return ToolUse(choice)


def _include_usage(fields: dict[str, Any]) -> bool:
    options = optional(fields, "stream_options", dict)
    if options is None:
        return False
    if not fields.get("stream"):
        raise BadRequest("stream_options is only allowed with stream = true.", param="stream_options")
    unknown = sorted(set(options) - {"include_usage", "include_obfuscation"})
    if unknown:
        where = f"stream_options.{unknown[0]}"
        raise BadRequest(f"Unrecognized field: {where}.", param=where, code="unsupported_parameter")
    return bool(optional(options, "include_usage", bool))


def _sampling(fields: dict[str, Any]) -> Sampling:
    max_tokens = integer(fields, "max_completion_tokens", low=1)
    extra: dict[str, Any] = {}
    for name, low, high in (
        ("frequency_penalty", -2.0, 2.0),
        ("presence_penalty", -2.0, 2.0),
        ("min_p", 0.0, 1.0),
        ("repetition_penalty", 0.01, 2.0),
    ):
        value = number(fields, name, low, high)
        if value is not None and value != (1.0 if name == "repetition_penalty" else 0.0):
            extra[name] = value
    if optional(fields, "ignore_eos", bool):
        extra["ignore_eos"] = True
    temperature = number(fields, "temperature", 0.0, 2.0)
    top_p = number(fields, "top_p", 0.0, 1.0)
    if top_p == 0.0:
        raise BadRequest("top_p must be above 0.", param="top_p", code="invalid_value")
    top_k = integer(fields, "top_k", low=-1)
    return Sampling(
        max_tokens=max_tokens if max_tokens is not None else integer(fields, "max_tokens", low=1),
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        top_k=top_k or -1,
        seed=integer(fields, "seed", low=-(2**63), high=2**63 - 1),
        stop=_stops(fields),
        extra=extra,
    )


def _stops(fields: dict[str, Any]) -> tuple[str, ...]:
    given = fields.get("stop", [])
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, list) or not all(isinstance(item, str) and item for item in stops):
        raise BadRequest("stop must be a non-empty string or a list of them.", param="stop", code="invalid_value")
    if len(stops) > MAX_STOPS:
        raise BadRequest(f"stop has {len(stops)} strings; at most {MAX_STOPS} are allowed.", param="stop")
    return tuple(stops)


def _agent_ids(metadata: dict[str, Any], user: str | None) -> dict[str, str]:
    ids = {f"metadata.{name}": value for name, value in metadata.items() if isinstance(value, str)}
    if user is not None:
        ids["user"] = user
    return ids
