"""The history in a relayed request, in canonical form, for the hash chain that finds the call it continues.

Parsing is lenient, because the upstream decides what it accepts: unknown content counts as its JSON text. An
assistant's turn has the same form whether it was parsed from an answer or is sent back as history. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import Message, Tool
from weir.proxy.relay.chat_answer import ParsedChoice
from weir.proxy.relay.item_answers import MessagesAnswerParser, add_item

_encode = msgspec.json.Encoder().encode


def history(dialect: str, fields: Mapping[str, Any]) -> tuple[list[Tool] | None, list[Message]]:
    """Tools and messages of a request, in canonical form."""
    tools = fields.get("tools")
    return (tools if isinstance(tools, list) else None), _READERS[dialect](fields)


def _chat(fields: Mapping[str, Any]) -> list[Message]:
    return [_chat_message(item) for item in _list(fields.get("messages"))]


def _chat_message(item: Any) -> Message:
    if not isinstance(item, dict):
        return {"role": "user", "content": _text(item)}
    message: Message = {"role": _text(item.get("role")), "content": _text(item.get("content"))}
    if isinstance(item.get("name"), str):
        message["name"] = item["name"]
    parsed = ParsedChoice()
    for index, call in enumerate(_list(item.get("tool_calls"))):
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
            named = {name: _text(function.get(name)) for name in ("name", "arguments")}
            parsed.add_tool_call(index, {"id": None, "function": named})
    if parsed.tool_calls:
        message["tool_calls"] = parsed.message()["tool_calls"]
    return message


def _completions(fields: Mapping[str, Any]) -> list[Message]:
    return [{"role": "user", "content": _text(fields.get("prompt"))}]


def _messages(fields: Mapping[str, Any]) -> list[Message]:
    system = fields.get("system")
    found: list[Message] = [] if system is None else [{"role": "system", "content": _text(system)}]
    for item in _list(fields.get("messages")):
        content = item.get("content") if isinstance(item, dict) else item
        if isinstance(item, dict) and item.get("role") == "assistant" and isinstance(content, list):
            answer = MessagesAnswerParser()
            answer.whole(_encode({"content": content}))
            found.append(answer.parsed.message())
        else:
            role = item.get("role") if isinstance(item, dict) else "user"
            found.append({"role": _text(role), "content": _text(content)})
    return found


def _responses(fields: Mapping[str, Any]) -> list[Message]:
    instructions, given = fields.get("instructions"), fields.get("input")
    found: list[Message] = [] if instructions is None else [{"role": "system", "content": _text(instructions)}]
    if not isinstance(given, list):
        return [*found, {"role": "user", "content": _text(given)}]
    turn: ParsedChoice | None = None  # neighbouring items of the assistant are one turn
    for index, item in enumerate(given):
        if isinstance(item, dict) and _is_assistants(item):
            turn = turn or ParsedChoice()
            add_item(turn, index, item)
            continue
        if turn is not None:
            found.append(turn.message())
            turn = None
        found.append(_responses_message(item))
    return found if turn is None else [*found, turn.message()]


def _responses_message(item: Any) -> Message:
    if isinstance(item, dict) and "role" in item:
        return {"role": _text(item["role"]), "content": _text(item.get("content"))}
    if isinstance(item, dict) and item.get("type") in ("function_call_output", "custom_tool_call_output"):
        return {"role": "tool", "content": _text(item.get("output"))}
    return {"role": "user", "content": _text(item)}


def _is_assistants(item: Mapping[str, Any]) -> bool:
    return item.get("role") == "assistant" or item.get("type") in ("function_call", "custom_tool_call", "reasoning")


def _text(value: Any) -> str:
    """A text as it is; parts that are all text joined; anything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list) and value and all(_is_text(part) for part in value):
        return "".join(part["text"] for part in value)
    return _encode(value).decode()


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_READERS = {"chat": _chat, "completions": _completions, "messages": _messages, "responses": _responses}
