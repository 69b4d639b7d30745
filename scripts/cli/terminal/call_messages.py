"""The messages of a recorded request as lines for people, in every dialect.

Reads bodies of chat completions, Responses, Messages and completions leniently: of a refused body it shows as much as
it can read. Pure functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """One message or part of one: `who` is system, user, tool, thinks, says or calls."""

    who: str
    text: str


def request_lines(request: Any) -> list[Line]:
    """All lines of a request's body, in order."""
    body = request if isinstance(request, dict) else {}
    lines = [Line("system", _text(body[name])) for name in ("system", "instructions") if body.get(name)]
    for name in ("messages", "input", "prompt"):
        given = body.get(name)
        if isinstance(given, list) and all(isinstance(item, dict) for item in given):
            lines += [line for item in given for line in _item(item)]
        elif given is not None:
            lines.append(Line("user", given if isinstance(given, str) else json.dumps(given)))
    return lines


def new_lines(request: Any) -> list[Line]:
    """The lines after the last answer in a request's history: new questions and tool results."""
    lines = request_lines(request)
    last = max((i for i, line in enumerate(lines) if line.who in ("thinks", "says", "calls")), default=-1)
    return lines[last + 1 :]


def answer_lines(answer: Any) -> list[Line]:
    """The lines of a recorded answer."""
    return list(_item(answer)) if isinstance(answer, dict) else []


def tools_of(request: Any) -> list[Line]:
    """The tools of a request: name and description."""
    tools = request.get("tools") if isinstance(request, dict) else None
    given = [tool.get("function", tool) for tool in tools or () if isinstance(tool, dict)]
    return [Line(str(tool.get("name", tool.get("type"))), str(tool.get("description") or "")) for tool in given]


def _item(item: dict[str, Any]) -> Iterator[Line]:
    """The lines of a message, or of an input item of Responses."""
    kind, role = item.get("type"), item.get("role")
    if kind == "function_call":
        yield Line("calls", f"{item.get('name')} {item.get('arguments')}")
    elif kind == "custom_tool_call":
        yield Line("calls", f"{item.get('name')} {item.get('input')}")
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield Line("tool", _text(item.get("output")))
    elif kind == "reasoning":
        yield Line("thinks", _text(item.get("summary") or item.get("content")))
    else:
        yield from _message(item, "says" if role == "assistant" else "system" if role == "developer" else str(role))


def _message(message: dict[str, Any], who: str) -> Iterator[Line]:
    thought = message.get("reasoning_content") or message.get("reasoning")
    if thought:
        yield Line("thinks", _text(thought))
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        yield from _block(block, who)
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        yield Line("calls", f"{function.get('name')} {function.get('arguments')}")


def _block(block: Any, who: str) -> Iterator[Line]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "tool_use":
        yield Line("calls", f"{block.get('name')} {json.dumps(block.get('input'), ensure_ascii=False)}")
    elif kind == "tool_result":
        yield Line("tool", _text(block.get("content")))
    elif kind == "thinking":
        yield Line("thinks", str(block.get("thinking")))
    elif text := _text(block):
        yield Line(who, text)


def _text(content: Any) -> str:
    """The text of a content (string, block, or list of blocks); a block without text is shown by its type."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "".join(_text(part) for part in content)
    if isinstance(content, dict):
        text = content.get("text", content.get("refusal"))
        return text if isinstance(text, str) else f"[{content.get('type')}]"
    return json.dumps(content)
