"""The form that a conversation must have to be learnt from: nothing in it is left out silently by a renderer.

Invariant: every message has a role that all renderers write and a text, or it is named and refused. Renderers drop the
words of roles that they do not know, and what is no text. Not here: which tokens come of it (`chat_rows.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ROLES = ("system", "user", "assistant", "tool")
_NOT_RENDERED = ("function_call", "audio")  # of older or other forms of OpenAI's


def check_conversation(messages: Sequence[dict[str, Any]]) -> None:
    """Raise `ValueError` naming the first message that cannot be learnt from as it stands."""
    for number, message in enumerate(messages):
        _check_message(message, f"messages[{number}]")
    if messages and messages[0]["role"] == "assistant":
        raise ValueError("messages[0] is the assistant's, and nothing was asked before it; begin with system or user")


def _check_message(message: dict[str, Any], where: str) -> None:
    role = message.get("role")
    if role not in ROLES:
        raise ValueError(f"{where}.role is {role!r:.40}, expected one of {', '.join(ROLES)}")
    for name in _NOT_RENDERED:
        if message.get(name) is not None:
            raise ValueError(f"{where}.{name} is not supported; calls of tools are tool_calls")
    if message.get("tool_calls") is not None:
        _check_calls(message["tool_calls"], role, f"{where}.tool_calls")
    _check_texts(message, where)
    weight = message.get("weight", 1)
    if not isinstance(weight, int | float) or weight not in (0, 1):
        raise ValueError(f"{where}.weight is {weight!r:.40}, expected 0 or 1 (false or true)")


def _check_texts(message: dict[str, Any], where: str) -> None:
    """The content, which an assistant that thinks or calls tools may lack, and what was thought."""
    content, thought = message.get("content"), message.get("reasoning_content")
    if thought is not None and not isinstance(thought, str):
        raise ValueError(f"{where}.reasoning_content is a {type(thought).__name__}, expected a string")
    if content is None and message["role"] == "assistant" and (message.get("tool_calls") or thought):
        return
    if not isinstance(content, str):
        kind = "missing or null" if content is None else f"a {type(content).__name__}"
        raise ValueError(f"{where}.content is {kind}, expected a string: images and other parts are not supported")


def _check_calls(calls: object, role: str, where: str) -> None:
    if role != "assistant":
        raise ValueError(f"{where} is in a message of {role}, only the assistant calls tools")
    if not isinstance(calls, list):
        raise ValueError(f"{where} is a {type(calls).__name__}, expected a list")
    for number, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ValueError(f'{where}[{number}] is {call!r:.80}, expected {{"function": {{"name", "arguments"}}}}')
        if not isinstance(function.get("arguments", {}), str | dict):
            raise ValueError(f"{where}[{number}].function.arguments is neither a string nor an object")
