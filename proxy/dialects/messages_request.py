"""Anthropic Messages, inbound: a body of POST /v1/messages or /v1/messages/count_tokens becomes a `CallRequest`.

Invariant: every field is honoured, known to be harmless, or refused with a 400 that names it. No input makes it raise
anything but `BadRequest`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import CallRequest, Tool, ToolUse
from weir.proxy.conversation.digests import chain
from weir.proxy.conversation.parsed_history import Beginnings
from weir.proxy.dialects.body import (
    ENGINE_SAMPLING,
    decoded_but,
    integer,
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
    unsupported,
)
from weir.proxy.dialects.histories import array_of, history_in
from weir.proxy.dialects.messages_input import billing_line_in, messages_in, prefill_in, system_in, tools_in
from weir.proxy.dialects.wishes import in_messages
from weir.proxy.errors import BadRequest

READ = ENGINE_SAMPLING | {
    *("model", "messages", "system", "max_tokens", "tools", "tool_choice", "stop_sequences", "stream"),
    *("temperature", "top_p", "metadata", "thinking", "thread", "output_config", "output_format", "context_management"),
}
HARMLESS = frozenset(
    {"cache_control", "service_tier", "inference_geo", "speed", "diagnostics", "user_profile_id", "workspace_id"}
)
# Fields whose listed values change nothing: any other value is refused.
NEUTRAL: dict[str, tuple[Any, ...]] = {"mcp_servers": ([],)}
NO_THREADS = "thread_unsupported_request"
CACHE_MARK = b'"cache_control"'  # agents set it on their last messages, and take it off earlier ones
SESSION_HEADER = "x-claude-code-session-id"

_OLDER_SESSION = re.compile(r"session_([0-9A-Za-z-]{8,})$")
_decode = msgspec.json.Decoder().decode


def parse(body: bytes, headers: Mapping[str, str], beginnings: Beginnings) -> CallRequest:
    """Parse a body of /v1/messages; of its messages only those that follow a known beginning. Raises `BadRequest`."""
    fields, raw = decoded_but("messages", body)
    required(fields, "max_tokens", int)
    return _request(fields, raw, headers, beginnings)


def parse_for_count(body: bytes, headers: Mapping[str, str]) -> CallRequest:
    """Parse a body of /v1/messages/count_tokens, which has no limit on the answer. Raises `BadRequest`."""
    fields, raw = decoded_but("messages", body)
    return _request(fields, raw, headers, Beginnings())


def _request(
    fields: dict[str, Any], raw: bytes | None, headers: Mapping[str, str], beginnings: Beginnings
) -> CallRequest:
    refuse_unknown(fields, READ | HARMLESS | NEUTRAL.keys())
    refuse_values(fields, NEUTRAL)
    _refuse_thread(fields)
    _check_context_management(fields)
    tools, hosted_tools = tools_in(fields)
    tool_use, tool_named, parallel = _tool_choice(fields, tools)
    images: list[str] = []
    raw, system = array_of("messages", raw), system_in(fields)
    messages, digests = history_in(
        raw, system, chain(tools, system), beginnings, images, messages_in, passing=CACHE_MARK
    )
    if len(messages) == len(system):
        raise BadRequest("messages: at least one message is required.", param="messages")
    begun_answer = messages[-1]["role"] == "assistant"
    prefill, grammar = prefill_in(messages), _grammar(fields)
    if prefill and (grammar or tool_use is ToolUse.REQUIRED):
        raise BadRequest(
            "messages: a last assistant message cannot be continued where the answer must have a format or call a "
            "tool; leave out one of them.",
            param="messages",
        )
    return CallRequest(
        model=required(fields, "model", str),
        messages=messages[:-1] if begun_answer else messages,
        digests=digests[:-1] if begun_answer else digests,
        prefill=prefill,
        images=tuple(images),
        tools=tools,
        hosted_tools=hosted_tools,
        tool_use=tool_use,
        tool_named=tool_named,
        parallel_tool_calls=parallel,
        stream=optional(fields, "stream", bool) or False,
        include_usage=True,
        sampling=sampling_in(
            fields,
            max_tokens=integer(fields, "max_tokens", low=1),
            stop=stops_in(fields, "stop_sequences"),
            extra=grammar,
        ),
        format_field="output_format" if "output_format" in fields else "output_config.format",
        wishes=in_messages(fields),
        session_hint=session_hint(fields, headers),
        agent_ids=_agent_ids(fields, headers),
    )


def _refuse_thread(fields: dict[str, Any]) -> None:
    """Refuse conversations held by the server, with the code that makes clients send the whole conversation instead."""
    if "thread" in fields:
        raise BadRequest("thread is not supported here; send all messages.", param="thread", code=NO_THREADS)


def _check_context_management(fields: dict[str, Any]) -> None:
    """Refuse edits other than clearing earlier thinking, which chat templates do anyway."""
    management = optional(fields, "context_management", dict) or {}
    refuse_unknown(management, {"edits"}, "context_management")
    for i, edit in enumerate(optional(management, "edits", list) or []):
        where = f"context_management.edits.{i}"
        if not isinstance(edit, dict) or not str(edit.get("type")).startswith("clear_thinking_"):
            raise unsupported(where, edit)


def _tool_choice(fields: dict[str, Any], tools: list[Tool] | None) -> tuple[ToolUse, str | None, bool]:
    choice = optional(fields, "tool_choice", dict)
    if choice is None:
        return ToolUse.AUTO, None, True
    refuse_unknown(choice, {"type", "name", "disable_parallel_tool_use"}, "tool_choice")
    kind = choice.get("type")
    parallel = not optional(choice, "disable_parallel_tool_use", bool)
    if kind in ("auto", "none"):
        return ToolUse(kind), None, parallel
    if kind not in ("any", "tool"):
        raise BadRequest(
            f'tool_choice.type must be "auto", "any", "tool" or "none", not {shown(kind)}.', param="tool_choice"
        )
    if tools is None:
        raise BadRequest(f"tool_choice.type = {shown(kind)} needs tools.", param="tool_choice")
    if kind == "any":
        return ToolUse.REQUIRED, None, parallel
    named = required_field(choice, "name", str, "tool_choice")
    if all(tool["function"]["name"] != named for tool in tools):
        raise BadRequest(f"tool_choice names {shown(named)}, which is not among the tools.", param="tool_choice.name")
    return ToolUse.REQUIRED, named, parallel


def _grammar(fields: dict[str, Any]) -> dict[str, Any]:
    config = optional(fields, "output_config", dict) or {}
    refuse_unknown(config, {"effort", "format"}, "output_config")
    if config.get("format") is not None and "output_format" in fields:
        raise BadRequest("output_format is the older name of output_config.format; send one.", param="output_format")
    where = "output_format" if "output_format" in fields else "output_config.format"
    form = optional(config, "format", dict) or optional(fields, "output_format", dict)
    if form is None:
        return {}
    if form.get("type") != "json_schema":
        raise unsupported(where, form, {"type": "json_schema"})
    return {"json_schema": schema_text(required_field(form, "schema", dict, where))}


def session_hint(fields: dict[str, Any], headers: Mapping[str, str]) -> str | None:
    """The session's name: Claude Code's session inside `metadata.user_id`, or any other agent's whole user id."""
    metadata = optional(fields, "metadata", dict) or {}
    user_id = metadata.get("user_id")
    named = metadata.get("session_id")
    if isinstance(named, str):
        return named
    if not isinstance(user_id, str):
        return headers.get(SESSION_HEADER)
    older = _OLDER_SESSION.search(user_id)
    return older[1] if older else _session_in_json(user_id) or headers.get(SESSION_HEADER) or user_id


def _session_in_json(user_id: str) -> str | None:
    """The session in a JSON text, which Claude Code 2.1.78 and later send."""
    try:
        value = _decode(user_id) if user_id.startswith("{") else None
    except (msgspec.DecodeError, RecursionError):
        return None
    session = value.get("session_id") if isinstance(value, dict) else None
    return session if isinstance(session, str) and session else None


def _agent_ids(fields: dict[str, Any], headers: Mapping[str, str]) -> dict[str, str]:
    ids = names_in(fields, "user_profile_id", "workspace_id")
    if SESSION_HEADER in headers:
        ids[SESSION_HEADER] = headers[SESSION_HEADER]
    billing_line = billing_line_in(fields)
    if billing_line is not None:
        ids["billing_line"] = billing_line
    return ids
