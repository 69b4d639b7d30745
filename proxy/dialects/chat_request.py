"""Chat completions, inbound: a body of POST /v1/chat/completions becomes a `CallRequest`.

Messages and tools come out in the form that renderers take. Invariant: every field is honoured, known to be harmless,
or refused with a 400 that names it; nothing is dropped silently, and nothing but `BadRequest` is raised.
"""

from __future__ import annotations

from typing import Any

from weir.proxy.conversation.call_request import CallRequest, Message, Tool, ToolUse
from weir.proxy.conversation.digests import root_digest
from weir.proxy.conversation.parsed_history import Beginnings
from weir.proxy.dialects.body import (
    ENGINE_SAMPLING,
    IMAGE,
    bias_in,
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
    session_hint,
    shown,
    stops_in,
    top_in,
    unsupported,
)
from weir.proxy.dialects.histories import array_of, history_in
from weir.proxy.dialects.wishes import in_chat
from weir.proxy.errors import BadRequest

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def messages_in(items: list[Any], start: int, images: list[str]) -> list[Message]:
    """Messages, numbered from `start` in errors; adds the paths of their images. Raises `BadRequest`."""
    return [_message(item, f"messages[{i}]", images) for i, item in enumerate(items, start)]


def _message(item: Any, where: str, images: list[str]) -> Message:
    if not isinstance(item, dict):
        raise BadRequest(f"{where} must be an object, not {kind_of(item)}.", param=where)
    role = item.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise BadRequest(f"{where}.role must be one of {', '.join(sorted(ROLES))}.", param=f"{where}.role")
    message: Message = {"role": role}
    message["content"] = _content(item.get("content"), f"{where}.content", images, optional=role == "assistant")
    if role == "assistant":
        _add_assistant_fields(message, item, where)
    elif role == "tool":
        message["tool_call_id"] = required_field(item, "tool_call_id", str, where)
    if item.get("name") is not None:
        message["name"] = required_field(item, "name", str, where)
    return message


def _content(value: Any, where: str, images: list[str], *, optional: bool) -> str:
    if isinstance(value, str):
        return value
    if value is None and optional:
        return ""
    if not isinstance(value, list):
        raise BadRequest(f"{where} must be a string or a list of parts, not {kind_of(value)}.", param=where)
    return "".join(_text_of(part, f"{where}[{i}]", images) for i, part in enumerate(value))


def _text_of(part: Any, where: str, images: list[str]) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise BadRequest(f"{where} must be an object with a type.", param=where)
    if part["type"] == "image_url":
        images.append(where)
        return IMAGE
    if part["type"] not in ("text", "refusal"):
        raise BadRequest(
            f"{where}: content of type {shown(part['type'])} is not supported; only text and images are.",
            param=where,
            code="unsupported_content",
        )
    return str(required_field(part, part["type"], str, where))


def _add_assistant_fields(message: Message, item: dict[str, Any], where: str) -> None:
    for name in ("audio", "function_call"):
        if item.get(name) is not None:
            raise BadRequest(f"{where}.{name} is not supported.", param=f"{where}.{name}", code="unsupported_parameter")
    reasoning = item.get("reasoning_content", item.get("reasoning"))
    if reasoning is not None:
        if not isinstance(reasoning, str):
            raise BadRequest(f"{where}.reasoning_content must be a string.", param=f"{where}.reasoning_content")
        message["reasoning_content"] = reasoning
    calls = item.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list):
            raise BadRequest(f"{where}.tool_calls must be a list.", param=f"{where}.tool_calls")
        if calls:
            message["tool_calls"] = [_tool_call(c, f"{where}.tool_calls[{i}]") for i, c in enumerate(calls)]


def _tool_call(item: Any, where: str) -> dict[str, Any]:
    if not isinstance(item, dict) or item.get("type", "function") != "function":
        raise BadRequest(f"{where} must be a call of type function.", param=where)
    function = required_field(item, "function", dict, where)
    name = required_field(function, "name", str, f"{where}.function")
    arguments = required_field(function, "arguments", str, f"{where}.function")
    identifier = required_field(item, "id", str, where)
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def tools_in(fields: dict[str, Any]) -> list[Tool] | None:
    """The function tools of a body; None where there are none. Raises `BadRequest`."""
    tools = optional(fields, "tools", list)
    for i, tool in enumerate(tools or []):
        where = f"tools[{i}]"
        if not isinstance(tool, dict) or tool.get("type") != "function":
            raise BadRequest(f"{where} must be a tool of type function.", param=where, code="unsupported_parameter")
        function = required_field(tool, "function", dict, where)
        required_field(function, "name", str, f"{where}.function")
        if function.get("parameters") is not None:
            required_field(function, "parameters", dict, f"{where}.function")
    return tools or None


READ = ENGINE_SAMPLING | {
    *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "n"),
    *("max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "logprobs", "response_format"),
    *("user", "metadata", "reasoning_effort", "verbosity", "chat_template_kwargs", "logit_bias", "top_logprobs"),
}
HARMLESS = frozenset({"store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
# Fields whose listed values change nothing: any other value is refused.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "modalities": (["text"],),
}
MAX_ANSWERS = 128


def parse(body: bytes, beginnings: Beginnings) -> CallRequest:
    """Parse a body; of its messages only those that follow a known beginning. Raises `BadRequest`."""
    fields, raw = decoded_but("messages", body)
    refuse_unknown(fields, READ | HARMLESS | NEUTRAL.keys())
    refuse_values(fields, NEUTRAL)
    tools = tools_in(fields)
    tool_use, tool_named = _tool_choice(fields, tools)
    max_tokens = integer(fields, "max_completion_tokens", low=1)
    model = required(fields, "model", str)
    images: list[str] = []
    raw = array_of("messages", raw)
    messages, digests = history_in(raw, [], [root_digest(tools)], beginnings, images, messages_in)
    if not messages:
        raise BadRequest("messages must not be empty.", param="messages")
    return CallRequest(
        model=model,
        messages=messages,
        digests=digests,
        tools=tools,
        images=tuple(images),
        tool_use=tool_use,
        tool_named=tool_named,
        parallel_tool_calls=optional(fields, "parallel_tool_calls", bool) is not False,
        num_answers=integer(fields, "n", low=1, high=MAX_ANSWERS) or 1,
        stream=optional(fields, "stream", bool) or False,
        include_usage=include_usage(fields),
        logprobs=optional(fields, "logprobs", bool) or False,
        top_logprobs=_top_logprobs(fields),
        sampling=sampling_in(
            fields,
            max_tokens=max_tokens if max_tokens is not None else integer(fields, "max_tokens", low=1),
            stop=stops_in(fields, "stop"),
            extra=bias_in(fields) | grammar_in(fields),
        ),
        wishes=in_chat(fields),
        session_hint=session_hint(fields),
        agent_ids=names_in(fields, "user"),
    )


def _top_logprobs(fields: dict[str, Any]) -> int:
    top = top_in(fields, "top_logprobs")
    if top and not optional(fields, "logprobs", bool):
        raise BadRequest(
            f"top_logprobs = {top} needs logprobs = true, beside which they are given.",
            param="top_logprobs",
            code="invalid_value",
        )
    return top


def include_usage(fields: dict[str, Any]) -> bool:
    """Whether a stream ends with the usage. Raises `BadRequest`."""
    options = optional(fields, "stream_options", dict)
    if options is None:
        return False
    if not fields.get("stream"):
        raise BadRequest("stream_options is only allowed with stream = true.", param="stream_options")
    refuse_unknown(options, {"include_usage", "include_obfuscation"}, "stream_options")
    return bool(optional(options, "include_usage", bool))


def grammar_in(fields: dict[str, Any]) -> dict[str, Any]:
    """The grammar in `response_format`, as the engine's sampling parameters. Raises `BadRequest`."""
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
