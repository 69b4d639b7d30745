"""Responses, inbound: a body of POST /v1/responses becomes a `CallRequest`.

Invariant: every field is honoured, known to be harmless, or refused with a 400 that names it. No input makes it raise
anything but `BadRequest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weir.proxy.conversation.call_request import CallRequest, Message, Thread, Tool, ToolUse
from weir.proxy.conversation.digests import Digest, chain
from weir.proxy.conversation.parsed_history import Beginnings
from weir.proxy.dialects import body
from weir.proxy.dialects.body import (
    ENGINE_SAMPLING,
    decoded_but,
    integer,
    kind_of,
    names_in,
    optional,
    refuse_unknown,
    refuse_values,
    required,
    required_field,
    sampling_in,
    schema_text,
    shown,
    stops_in,
    top_in,
    unsupported,
    value_of,
)
from weir.proxy.dialects.histories import history_in
from weir.proxy.dialects.responses_input import messages_in
from weir.proxy.dialects.responses_object import call_id_of
from weir.proxy.dialects.responses_tools import joined, tools_in
from weir.proxy.dialects.wishes import in_responses
from weir.proxy.errors import BadRequest

READ = ENGINE_SAMPLING | {
    *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "include", "reasoning"),
    *("max_output_tokens", "temperature", "top_p", "stop", "stream", "stream_options", "store", "previous_response_id"),
    *("metadata", "user", "top_logprobs"),
}
HARMLESS = frozenset(
    {
        *("service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
        *("max_tool_calls", "client_metadata"),
    }
)
# Fields whose listed values change nothing: any other value is refused.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "truncation": ("disabled",),
}
INCLUDE_LOGPROBS = "message.output_text.logprobs"
# Fields of the request that its response repeats; an absent one is null.
ECHOED = (
    *("instructions", "max_output_tokens", "max_tool_calls", "metadata", "parallel_tool_calls", "previous_response_id"),
    *("prompt_cache_key", "reasoning", "safety_identifier", "store", "temperature", "text", "tool_choice", "tools"),
    *("top_p", "user"),
)
SESSION_HEADERS = ("session-id", "session_id")  # names that codex's versions give their conversation


def parse(body: bytes, headers: Mapping[str, str], beginnings: Beginnings) -> CallRequest:
    """Parse a body; of its input only what follows a known beginning. Raises `BadRequest`."""
    fields, raw = decoded_but("input", body)
    refuse_unknown(fields, READ | HARMLESS | NEUTRAL.keys())
    refuse_values(fields, NEUTRAL)
    _check_hints(fields)
    tools = tools_in(fields)
    tool_use, tool_named = _tool_choice(fields, tools.functions)
    instructions = _instructions(fields)
    previous = optional(fields, "previous_response_id", str)
    images: list[str] = []
    messages, digests = _conversation(raw, instructions, tools.functions, beginnings, images)
    if not messages and previous is None:
        raise BadRequest("you must provide input.", param="input", code="missing_required_parameter")
    return CallRequest(
        model=required(fields, "model", str),
        messages=messages,
        digests=digests if previous is None else None,
        images=tuple(images),
        tools=tools.functions,
        hosted_tools=tools.hosted,
        ignored_fields=tools.ignored_fields,
        tool_use=tool_use,
        tool_named=tool_named,
        parallel_tool_calls=optional(fields, "parallel_tool_calls", bool) is not False,
        thread=Thread(
            previous=None if previous is None else call_id_of(previous),
            num_instructions=len(instructions),
            kept=optional(fields, "store", bool) is not False,
        ),
        stream=optional(fields, "stream", bool) or False,
        include_usage=True,
        logprobs=INCLUDE_LOGPROBS in (optional(fields, "include", list) or []),
        top_logprobs=top_in(fields, "top_logprobs"),
        sampling=sampling_in(
            fields,
            max_tokens=integer(fields, "max_output_tokens", low=1),
            stop=stops_in(fields, "stop"),
            extra=_grammar(fields),
        ),
        format_field="text.format",
        wishes=in_responses(fields),
        session_hint=session_hint(fields, headers),
        agent_ids=names_in(fields, "user", "prompt_cache_key", "safety_identifier"),
        echo={name: fields[name] for name in ECHOED if name in fields},
    )


def _conversation(
    raw: bytes | None, instructions: list[Message], tools: list[Tool] | None, beginnings: Beginnings, images: list[str]
) -> tuple[Sequence[Message], list[Digest]]:
    """The messages of `input` behind the instructions, and the digests of all prefixes. Raises `BadRequest`."""
    if raw is not None and raw[:1] == b"[":
        before = chain(tools, instructions)
        return history_in(raw, instructions, before, beginnings, images, messages_in, joins_answers=True)
    given = None if raw is None else value_of(raw)
    if given is not None and not isinstance(given, str):
        raise BadRequest(f"input must be a string or a list of items, not {kind_of(given)}.", param="input")
    messages = instructions if given is None else [*instructions, {"role": "user", "content": given}]
    return messages, chain(tools, messages)


def _instructions(fields: dict[str, Any]) -> list[dict[str, Any]]:
    text = optional(fields, "instructions", str)
    return [{"role": "system", "content": text}] if text else []


def _check_hints(fields: dict[str, Any]) -> None:
    """Check the form of fields that do not change the answer here."""
    options = optional(fields, "stream_options", dict) or {}
    refuse_unknown(options, {"include_obfuscation"}, "stream_options")
    for i, name in enumerate(optional(fields, "include", list) or []):
        if not isinstance(name, str):
            raise BadRequest(f"include[{i}] must be a string.", param=f"include[{i}]")


def _tool_choice(fields: dict[str, Any], tools: list[Tool] | None) -> tuple[ToolUse, str | None]:
    choice = fields.get("tool_choice", "auto")
    if choice in ("auto", "none"):
        return ToolUse(choice), None
    is_function = isinstance(choice, dict) and choice.get("type") in ("function", "custom")
    if choice != "required" and not is_function:
        raise unsupported("tool_choice", choice, "auto", "none", "required", {"type": "function", "name": "…"})
    if tools is None:
        raise BadRequest(f"tool_choice = {shown(choice)} needs tools.", param="tool_choice")
    if not is_function:
        return ToolUse.REQUIRED, None
    named = joined(optional(choice, "namespace", str), required_field(choice, "name", str, "tool_choice"))
    if all(tool["function"]["name"] != named for tool in tools):
        raise BadRequest(f"tool_choice names {shown(named)}, which is not among the tools.", param="tool_choice")
    return ToolUse.REQUIRED, named


def _grammar(fields: dict[str, Any]) -> dict[str, Any]:
    text = optional(fields, "text", dict) or {}
    refuse_unknown(text, {"format", "verbosity"}, "text")
    form = optional(text, "format", dict)
    kind = "text" if form is None else form.get("type")
    if form is None or kind == "text":
        return {}
    if kind == "json_schema":
        return {"json_schema": schema_text(required_field(form, "schema", dict, "text.format"))}
    if kind == "json_object":
        return {"json_schema": schema_text({"type": "object"})}
    raise unsupported("text.format.type", kind, "text", "json_schema", "json_object")


def session_hint(fields: dict[str, Any], headers: Mapping[str, str]) -> str | None:
    """The session that a body or a header names: `metadata.session_id`, else the user, else codex's header."""
    return body.session_hint(fields) or next((headers[name] for name in SESSION_HEADERS if name in headers), None)
