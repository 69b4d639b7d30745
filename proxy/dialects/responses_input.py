"""Input items of a Responses body, in the form that renderers take.

Invariant: the same conversation gives the same messages as it would in the chat dialect. Reasoning, text and function
calls that stand beside each other are one assistant message, as one answer gave them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weir.proxy.conversation.call_request import Message
from weir.proxy.dialects.body import IMAGE, kind_of, optional, required_field, shown
from weir.proxy.dialects.custom_tools import arguments_of
from weir.proxy.dialects.responses_tools import CUSTOM_CALL, joined
from weir.proxy.errors import BadRequest

ROLES = ("user", "assistant", "system", "developer")
TEXT_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}


def messages_in(items: list[Any], start: int, images: list[str]) -> list[Message]:
    """The messages of items, numbered from `start` in errors; adds the paths of images. Raises `BadRequest`."""
    messages: list[Message] = []
    for i, item in enumerate(items, start):
        _add(messages, item, f"input[{i}]", images)
    return messages


def _add(messages: list[Message], item: Any, where: str, images: list[str]) -> None:
    if not isinstance(item, dict):
        raise BadRequest(f"{where} must be an object, not {kind_of(item)}.", param=where)
    kind = item.get("type", "message")
    add = _ITEMS.get(kind) if isinstance(kind, str) else None
    if add is None:
        raise BadRequest(
            f"{where}: items of type {shown(kind)} are not supported here; send {', '.join(_ITEMS)}.",
            param=where,
            code="unsupported_content",
        )
    add(messages, item, where, images)


def _add_message(messages: list[Message], item: dict[str, Any], where: str, images: list[str]) -> None:
    role = item.get("role")
    if role not in ROLES:
        raise BadRequest(f"{where}.role must be one of {', '.join(ROLES)}.", param=f"{where}.role")
    content = _texts(item.get("content"), f"{where}.content", images)
    if role != "assistant":
        messages.append({"role": "system" if role == "developer" else role, "content": content})
        return
    turn = _turn(messages, "content", "tool_calls")
    turn["content"] = content


def _add_function_call(messages: list[Message], item: dict[str, Any], where: str, _images: list[str]) -> None:
    name = joined(optional(item, "namespace", str), required_field(item, "name", str, where))
    _add_call(messages, item, where, {"name": name, "arguments": required_field(item, "arguments", str, where)})


def _add_custom_call(messages: list[Message], item: dict[str, Any], where: str, _images: list[str]) -> None:
    arguments = arguments_of(required_field(item, "input", str, where))
    _add_call(messages, item, where, {"name": required_field(item, "name", str, where), "arguments": arguments})


def _add_call(messages: list[Message], item: dict[str, Any], where: str, function: dict[str, str]) -> None:
    call = {"id": required_field(item, "call_id", str, where), "type": "function", "function": function}
    _turn(messages).setdefault("tool_calls", []).append(call)


def _add_function_output(messages: list[Message], item: dict[str, Any], where: str, images: list[str]) -> None:
    call_id = required_field(item, "call_id", str, where)
    text = _texts(item.get("output"), f"{where}.output", images)
    messages.append({"role": "tool", "content": text, "tool_call_id": call_id})


def _add_reasoning(messages: list[Message], item: dict[str, Any], where: str, _images: list[str]) -> None:
    """Add an item's reasoning: its text, else its summary. Encrypted content is ignored."""
    text = _reasoning_text(item, "content", where) or _reasoning_text(item, "summary", where)
    turn = _turn(messages, "content", "tool_calls")
    if text:
        turn["reasoning_content"] = turn.get("reasoning_content", "") + text


_ITEMS: dict[str, Callable[[list[Message], dict[str, Any], str, list[str]], None]] = {
    "message": _add_message,
    "function_call": _add_function_call,
    "function_call_output": _add_function_output,
    CUSTOM_CALL: _add_custom_call,
    "custom_tool_call_output": _add_function_output,
    "reasoning": _add_reasoning,
}


def _turn(messages: list[Message], *ended_by: str) -> Message:
    """The assistant message that an item belongs to: the last one, unless the item cannot follow its content."""
    if messages and messages[-1]["role"] == "assistant" and not any(messages[-1].get(name) for name in ended_by):
        return messages[-1]
    messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _reasoning_text(item: dict[str, Any], name: str, where: str) -> str:
    parts = item.get(name)
    if parts is None:
        return ""
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise BadRequest(f"{where}.{name} must be a list of parts.", param=f"{where}.{name}")
    return "".join(required_field(part, "text", str, f"{where}.{name}[{i}]") for i, part in enumerate(parts))


def _texts(value: Any, where: str, images: list[str]) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise BadRequest(f"{where} must be a string or a list of parts, not {kind_of(value)}.", param=where)
    return "".join(_text(part, f"{where}[{i}]", images) for i, part in enumerate(value))


def _text(part: Any, where: str, images: list[str]) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise BadRequest(f"{where} must be an object with a type.", param=where)
    if kind == "input_image":
        images.append(where)
        return IMAGE
    if kind not in TEXT_PARTS:
        raise BadRequest(
            f"{where}: content of type {shown(kind)} is not supported; only text and images are.",
            param=where,
            code="unsupported_content",
        )
    text: str = required_field(part, TEXT_PARTS[kind], str, where)
    return text
