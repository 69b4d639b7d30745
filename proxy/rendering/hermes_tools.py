"""Tools as text, by the convention of Hermes: for models whose chat template has none.

The tools stand in the system prompt between <tools> tags; a call is JSON between <tool_call> tags, a result a text
between <tool_response> tags, in the user's role. Pure. Invariant: a call that cannot be read stays text.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

from weir.proxy.conversation.call_request import Message, Tool

CALL_MARK = "<tool_call>"
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_INTRODUCTION = """\
# Tools

You may call functions to help with the user's request. Their signatures are within <tools></tools> tags:
<tools>
{tools}
</tools>

To call a function, write a JSON object with its name and its arguments within <tool_call></tool_call> tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def as_text(messages: Sequence[Message], tools: list[Tool] | None, *, has_system: bool) -> list[Message]:
    """The messages with calls and results as text, and the tools before them.

    `tools` is None for messages that follow others. Without `has_system` the tools stand in the first message.
    """
    written: list[Message] = []
    for is_result, group in itertools.groupby(messages, lambda message: message["role"] == "tool"):
        if is_result:
            results = (f"<tool_response>\n{message['content']}\n</tool_response>" for message in group)
            written.append({"role": "user", "content": "\n".join(results)})
        else:
            written += map(_with_calls, group)
    return _introduced(written, tools, has_system=has_system) if tools else written


def calls_in(content: str) -> tuple[str, list[tuple[str, Any]]]:
    """The text around the calls in an answer's content, and the name and arguments of each call."""
    calls: list[tuple[str, Any]] = []
    texts: list[str] = []
    start = 0
    for found in _CALL.finditer(content):
        call = _read(found[1])
        if call is not None:
            calls.append(call)
            texts.append(content[start : found.start()])
            start = found.end()
    if not calls:
        return content, []
    first, *others = [*texts, content[start:]]
    return "\n".join(text for text in (first.rstrip(), *(other.strip() for other in others)) if text), calls


def before_open_call(content: str) -> str:
    """The content up to a call that is not closed, or cannot be read: what may still become something else."""
    return content.partition(CALL_MARK)[0]


def _read(text: str) -> tuple[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    name = value.get("name") if isinstance(value, dict) else None
    return (name, value.get("arguments", {})) if isinstance(name, str) and name else None


def _with_calls(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        return message
    texts = [message.get("content") or ""]
    for call in calls:
        function = call["function"]
        name, arguments = json.dumps(function["name"], ensure_ascii=False), function["arguments"].strip() or "{}"
        texts.append(f'{CALL_MARK}\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>')
    return {k: v for k, v in message.items() if k != "tool_calls"} | {"content": "\n".join(t for t in texts if t)}


def _introduced(messages: list[Message], tools: list[Tool], *, has_system: bool) -> list[Message]:
    introduction = _INTRODUCTION.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if has_system and not (messages and messages[0]["role"] == "system"):
        return [{"role": "system", "content": introduction}, *messages]
    if not messages:
        return messages
    first = messages[0]
    parts = (first["content"], introduction) if has_system else (introduction, first["content"])
    return [{**first, "content": "\n\n".join(part for part in parts if part)}, *messages[1:]]
