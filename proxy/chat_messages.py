"""The messages and tools of a chat body, in the form that renderers take. Raises `BadRequest` for anything else."""

from __future__ import annotations

from typing import Any

from weir.proxy.dialect import Message, Tool
from weir.proxy.errors import BadRequest
from weir.proxy.json_fields import kind_of, optional, required, required_field, shown

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def messages_in(fields: dict[str, Any], start: int = 0) -> list[Message]:
    """The messages of a body; of `start` messages before them nothing has to be read."""
    given = required(fields, "messages", list)
    if not given:
        raise BadRequest("messages must not be empty.", param="messages")
    return [_message(item, f"messages[{i}]") for i, item in enumerate(given, start)]


def _message(item: Any, where: str) -> Message:
    if not isinstance(item, dict):
        raise BadRequest(f"{where} must be an object, not {kind_of(item)}.", param=where)
    role = item.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise BadRequest(f"{where}.role must be one of {', '.join(sorted(ROLES))}.", param=f"{where}.role")
    message: Message = {"role": role}
    message["content"] = _content(item.get("content"), f"{where}.content", optional=role == "assistant")
    if role == "assistant":
        _add_assistant_fields(message, item, where)
    elif role == "tool":
        message["tool_call_id"] = required_field(item, "tool_call_id", str, where)
    if item.get("name") is not None:
        message["name"] = required_field(item, "name", str, where)
    return message


def _content(value: Any, where: str, *, optional: bool) -> str:
    if isinstance(value, str):
        return value
    if value is None and optional:
        return ""
    if not isinstance(value, list):
        raise BadRequest(f"{where} must be a string or a list of parts, not {kind_of(value)}.", param=where)
    return "".join(_text_of(part, f"{where}[{i}]") for i, part in enumerate(value))


def _text_of(part: Any, where: str) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise BadRequest(f"{where} must be an object with a type.", param=where)
    if part["type"] not in ("text", "refusal"):
        raise BadRequest(
            f"{where}: content of type {shown(part['type'])} is not supported; only text is.",
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
