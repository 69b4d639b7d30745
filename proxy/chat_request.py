"""Chat completions, inbound: a body of POST /v1/chat/completions becomes a `CallRequest`.

Invariant: every field is honoured, known to be harmless, or refused with a 400 that names it; nothing is dropped
silently. No input makes it raise anything but `BadRequest`. Not here: what answers look like (chat.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weir.proxy.canonical import Digest, chain, root_digest
from weir.proxy.chat_messages import messages_in, tools_in
from weir.proxy.dialect import CallRequest, Message, Tool, ToolUse
from weir.proxy.errors import BadRequest
from weir.proxy.history import Beginnings, History, continued_chain, num_characters
from weir.proxy.json_fields import integer, optional, required, required_field, shown
from weir.proxy.request_body import (
    ENGINE_SAMPLING,
    decoded_but,
    names_in,
    refuse_unknown,
    refuse_values,
    sampling_in,
    schema_text,
    stops_in,
    unsupported,
    value_of,
)

READ = ENGINE_SAMPLING | {
    *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "n"),
    *("max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "logprobs", "response_format"),
    *("user", "metadata"),
}
HARMLESS = frozenset({"store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
# Fields with a value that asks for nothing: any other value is refused.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "logit_bias": ({},),
    "modalities": (["text"],),
    "top_logprobs": (0,),
}
MAX_ANSWERS = 128


def parse(body: bytes, beginnings: Beginnings) -> CallRequest:
    """Read a body; of its messages only those that follow a known beginning. Raises `BadRequest`."""
    fields, raw = decoded_but("messages", body)
    refuse_unknown(fields, READ | HARMLESS | NEUTRAL.keys())
    refuse_values(fields, NEUTRAL)
    tools = tools_in(fields)
    tool_use, tool_named = _tool_choice(fields, tools)
    hint = (optional(fields, "metadata", dict) or {}).get("session_id")
    max_tokens = integer(fields, "max_completion_tokens", low=1)
    model = required(fields, "model", str)
    messages, digests = _history(b"null" if raw is None else raw, tools, beginnings)
    return CallRequest(
        model=model,
        messages=messages,
        digests=digests,
        tools=tools,
        tool_use=tool_use,
        tool_named=tool_named,
        parallel_tool_calls=optional(fields, "parallel_tool_calls", bool) is not False,
        num_answers=integer(fields, "n", low=1, high=MAX_ANSWERS) or 1,
        stream=optional(fields, "stream", bool) or False,
        include_usage=include_usage(fields),
        logprobs=optional(fields, "logprobs", bool) or False,
        sampling=sampling_in(
            fields,
            max_tokens=max_tokens if max_tokens is not None else integer(fields, "max_tokens", low=1),
            stop=stops_in(fields, "stop"),
            extra=grammar_in(fields),
        ),
        session_hint=hint if isinstance(hint, str) else optional(fields, "user", str),
        agent_ids=names_in(fields, "user"),
    )


def _history(raw: bytes, tools: list[Tool] | None, beginnings: Beginnings) -> tuple[Sequence[Message], list[Digest]]:
    """The messages in their JSON, and their digests."""
    begun = beginnings.find(raw, root_digest(tools))
    messages: Sequence[Message]
    if begun is None:
        messages = _read(raw)
        digests = chain(tools, messages)
    else:
        rest = raw[begun.num_bytes :].lstrip(b" \t\r\n")[1:]
        new = messages_in({"messages": value_of(b"[" + rest)}, begun.num_messages)
        messages = History(begun, new, lambda: _read(raw[: begun.num_bytes] + b"]"))
        digests = continued_chain(begun, new)
    beginnings.remember(raw, digests, num_characters(messages))
    return messages, digests


def _read(raw: bytes) -> list[Message]:
    return messages_in({"messages": value_of(raw)})


def include_usage(fields: dict[str, Any]) -> bool:
    """Whether a stream ends with the usage."""
    options = optional(fields, "stream_options", dict)
    if options is None:
        return False
    if not fields.get("stream"):
        raise BadRequest("stream_options is only allowed with stream = true.", param="stream_options")
    refuse_unknown(options, {"include_usage", "include_obfuscation"}, "stream_options")
    return bool(optional(options, "include_usage", bool))


def grammar_in(fields: dict[str, Any]) -> dict[str, Any]:
    """What `response_format` asks for, by the engine's names."""
    form = optional(fields, "response_format", dict)
    kind = "text" if form is None else form.get("type")
    if form is None or kind == "text":
        return {}
    if kind == "json_object":
        return {"json_schema": schema_text({"type": "object"})}
    if kind != "json_schema":
        raise unsupported("response_format.type", kind, "text", "json_schema", "json_object")
    schema = required_field(form, "json_schema", dict, "response_format")
    return {"json_schema": schema_text(required_field(schema, "schema", dict, "response_format.json_schema"))}


def _tool_choice(fields: dict[str, Any], tools: list[Tool] | None) -> tuple[ToolUse, str | None]:
    choice = fields.get("tool_choice", "auto")
    if choice in ("auto", "none"):
        return ToolUse(choice), None
    is_function = isinstance(choice, dict) and choice.get("type") == "function"
    if choice != "required" and not is_function:
        raise unsupported("tool_choice", choice, "auto", "none", "required", {"type": "function", "function": {}})
    if tools is None:
        raise BadRequest(f"tool_choice = {shown(choice)} needs tools.", param="tool_choice", code="invalid_value")
    if not is_function:
        return ToolUse.REQUIRED, None
    function = required_field(choice, "function", dict, "tool_choice")
    named = required_field(function, "name", str, "tool_choice.function")
    if all(tool["function"]["name"] != named for tool in tools):
        raise BadRequest(
            f"tool_choice names {shown(named)}, which is not among the tools.",
            param="tool_choice",
            code="invalid_value",
        )
    return ToolUse.REQUIRED, str(named)
