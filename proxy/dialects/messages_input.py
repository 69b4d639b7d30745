"""System, messages and tools of a Messages body, in the form that renderers take.

Invariant: the same conversation gives the same messages as it would in the chat dialect. Texts that stand beside each
other are one text; a tool result is a message of its own; thinking is the reasoning of its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import HostedTool, Message, Tool
from weir.proxy.dialects.body import IMAGE, kind_of, optional, required_field, shown
from weir.proxy.errors import BadRequest

# Claude Code opens its system prompt with a billing line, whose checksum differs in every request.
BILLING_LINE = "x-anthropic-billing-header:"
# litellm's content for an assistant message that consists of tool calls only.
STANDS_FOR_NOTHING = "[System: Empty message content sanitised to satisfy protocol]"
HARMLESS_IN_TOOLS = frozenset({"type", "cache_control", "eager_input_streaming", "allowed_callers", "defer_loading"})
READ_IN_TOOLS = frozenset({"name", "description", "input_schema", "strict"})

_encode = msgspec.json.Encoder().encode


def messages_in(items: list[Any], start: int, images: list[str]) -> list[Message]:
    """The messages of items, numbered from `start` in errors; adds the paths of images. Raises `BadRequest`."""
    messages: list[Message] = []
    for i, item in enumerate(items, start):
        messages += _messages_of(item, f"messages.{i}", images)
    return messages


def prefill_in(messages: Sequence[Message]) -> str:
    """The text of a last assistant message, which is no message of the prompt; empty where there is none.

    Raises `BadRequest`.
    """
    last = messages[-1]
    if last["role"] != "assistant":
        return ""
    if len(messages) == 1 or "tool_calls" in last or "reasoning_content" in last:
        raise BadRequest(
            "messages: a last assistant message is continued, so it must be text behind a question; "
            "thinking and tool_use cannot be continued.",
            param="messages",
        )
    text: str = last["content"].lstrip()
    if text != text.rstrip():
        raise BadRequest("messages: final assistant content cannot end with trailing whitespace", param="messages")
    return text


def tools_in(fields: dict[str, Any]) -> tuple[list[Tool] | None, tuple[HostedTool, ...]]:
    """Tools in the chat form (None without any), and the host's tools. Raises `BadRequest`."""
    tools, hosted = [], []
    for i, item in enumerate(optional(fields, "tools", list) or []):
        where = f"tools.{i}"
        if not isinstance(item, dict):
            raise BadRequest(f"{where} must be an object, not {kind_of(item)}.", param=where)
        kind = None if item.get("type") is None else required_field(item, "type", str, where)
        if kind in (None, "custom"):
            tools.append(_tool(item, where))
        else:
            hosted.append(HostedTool(where, kind))
    return tools or None, tuple(hosted)


def billing_line_in(fields: dict[str, Any]) -> str | None:
    """The system prompt's billing line, which is kept from the model."""
    system = fields.get("system")
    blocks = system if isinstance(system, list) else [{"text": system}]
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    lines = [text.partition("\n")[0] for text in texts if isinstance(text, str) and text.startswith(BILLING_LINE)]
    return lines[0] if lines else None


def system_in(fields: dict[str, Any]) -> list[Message]:
    """The system prompt as messages, without its billing line. Raises `BadRequest`."""
    given = fields.get("system")
    if given is None:
        return []
    blocks = [given] if isinstance(given, str) else _texts(given, "system")
    text = "".join(_without_billing_line(block) for block in blocks)
    return [{"role": "system", "content": text}] if text else []


def _without_billing_line(text: str) -> str:
    return text.partition("\n")[2] if text.startswith(BILLING_LINE) else text


def _messages_of(item: Any, where: str, images: list[str]) -> list[Message]:
    if not isinstance(item, dict):
        raise BadRequest(f"{where} must be an object, not {kind_of(item)}.", param=where)
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system"):
        raise BadRequest(f'{where}.role must be "user", "assistant" or "system".', param=f"{where}.role")
    where = f"{where}.content"
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list):
        raise BadRequest(f"{where} must be a string or a list of blocks, not {kind_of(content)}.", param=where)
    if role == "user":
        return _user_messages(content, where, images)
    return [_assistant_message(content, where)] if role == "assistant" else [_plain_message(content, where, role)]


def _plain_message(blocks: list[Any], where: str, role: str) -> Message:
    return {"role": role, "content": "".join(_texts(blocks, where))}


def _user_messages(blocks: list[Any], where: str, images: list[str]) -> list[Message]:
    messages: list[Message] = []
    for i, block in enumerate(blocks):
        place = f"{where}.{i}"
        if _kind(block, place) == "tool_result":
            messages.append(_tool_result(block, place, images))
        elif messages and messages[-1]["role"] == "user":
            messages[-1]["content"] += _text_or_image(block, place, images)
        else:
            messages.append({"role": "user", "content": _text_or_image(block, place, images)})
    return messages or [{"role": "user", "content": ""}]


def _assistant_message(blocks: list[Any], where: str) -> Message:
    content, reasoning, calls = "", "", []
    for i, block in enumerate(blocks):
        place = f"{where}.{i}"
        kind = _kind(block, place)
        if kind == "thinking":
            reasoning += required_field(block, "thinking", str, place)
        elif kind == "tool_use":
            calls.append(_tool_use(block, place))
        elif kind != "redacted_thinking":  # holds nothing that a model could read
            content += _text(block, place)
    if content == STANDS_FOR_NOTHING:
        content = ""
    message: Message = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def _tool_use(block: dict[str, Any], where: str) -> dict[str, Any]:
    arguments = _encode(required_field(block, "input", dict, where)).decode()
    function = {"name": required_field(block, "name", str, where), "arguments": arguments}
    return {"id": required_field(block, "id", str, where), "type": "function", "function": function}


def _tool_result(block: dict[str, Any], where: str, images: list[str]) -> Message:
    content = block.get("content")
    text = content if isinstance(content, str) else "".join(_texts(content or [], f"{where}.content", images))
    if block.get("is_error") is True and not text.startswith("Error"):
        text = f"Error: {text}"
    return {"role": "tool", "content": text, "tool_call_id": required_field(block, "tool_use_id", str, where)}


def _texts(blocks: Any, where: str, images: list[str] | None = None) -> list[str]:
    """The texts of blocks; images are among them where `images` collects their paths."""
    if not isinstance(blocks, list):
        raise BadRequest(f"{where} must be a string or a list of blocks, not {kind_of(blocks)}.", param=where)
    read = _text if images is None else partial(_text_or_image, images=images)
    return [read(block, f"{where}.{i}") for i, block in enumerate(blocks)]


def _text_or_image(block: Any, where: str, images: list[str]) -> str:
    if _kind(block, where) != "image":
        return _text(block, where)
    images.append(where)
    return IMAGE


def _text(block: Any, where: str) -> str:
    kind = _kind(block, where)
    if kind != "text":
        raise BadRequest(
            f"{where}: blocks of type {shown(kind)} are not supported here; only text, images, tools and thinking are.",
            param=where,
            code="unsupported_content",
        )
    text: str = required_field(block, "text", str, where)
    return text


def _kind(block: Any, where: str) -> str:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise BadRequest(f"{where} must be an object with a type.", param=where)
    kind: str = block["type"]
    return kind


def _tool(item: dict[str, Any], where: str) -> Tool:
    for name, value in item.items():
        asks_nothing = name in HARMLESS_IN_TOOLS and not (name == "defer_loading" and value)
        if value is not None and name not in READ_IN_TOOLS and not asks_nothing:
            raise BadRequest(
                f"{where}.{name} is not supported here.", param=f"{where}.{name}", code="unsupported_parameter"
            )
    function = {"name": required_field(item, "name", str, where)}
    if item.get("description") is not None:
        function["description"] = required_field(item, "description", str, where)
    function["parameters"] = required_field(item, "input_schema", dict, where)
    if item.get("strict") is not None:
        function["strict"] = required_field(item, "strict", bool, where)
    return {"type": "function", "function": function}
