"""Supervised data: JSON Lines of conversations and plain texts, their validation, and the token rows made from them.

Invariant: every line is a conversation or a text, and every message has a role and a text that all renderers write;
anything else is refused with its line number. A renderer would silently drop unknown roles and contents that are not
text. `chat_rows.py` and `rows.py` turn lines into token ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from weir.store.records.call_record import TokenIds
from weir.trainer.errors import TrainerUsageError

ROLES = ("system", "user", "assistant", "tool")
_NOT_RENDERED = ("function_call", "audio")  # fields of OpenAI's API that no renderer writes


def check_conversation(messages: Sequence[dict[str, Any]]) -> None:
    """Raise `ValueError` naming the first message that cannot be rendered completely."""
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
    """Check `content`, which an assistant message with tool calls or reasoning may lack, and `reasoning_content`."""
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


Message = dict[str, Any]

FORMS = '{"messages": […]} or {"text": "…"}; {"ids": […], "targets": [[start, end], …], "tokenizer"} may be added'


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A line of chat; the targets are the assistant's tokens."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    origin: str = "a conversation"  # its file and line, for errors


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A line of plain text; all of its tokens are targets."""

    text: str


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A line with the token ids of a recorded branch; `conversation` stands in for them with another vocabulary."""

    ids: list[int]
    targets: list[tuple[int, int]]  # start and end of each run of targets
    tokenizer: str  # digest of the vocabulary of the ids
    conversation: Conversation | None
    origin: str


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[Message] | None = None
    tools: list[dict[str, Any]] | None = None
    text: str | None = None
    ids: list[int] | None = None
    targets: list[tuple[int, int]] = []
    tokenizer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedRow:
    """A training sequence."""

    ids: TokenIds  # (T,)
    targets: npt.NDArray[np.bool_]  # (T,); the first token is never trained on

    @property
    def num_targets(self) -> int:
        """Number of tokens that are trained on."""
        return int(self.targets[1:].sum())


def digest_of(rows: Iterable[SupervisedRow]) -> str:
    """sha256 over ids and targets: it changes with the data, the tokenizer and the renderer."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(len(row.ids).to_bytes(8, "little") + row.ids.tobytes() + row.targets.tobytes())
    return digest.hexdigest()


def is_learnt(message: Message) -> bool:
    """Whether a message's tokens are targets."""
    return message.get("role") == "assistant" and message.get("weight", 1) != 0


Line = Conversation | Text | Recorded


def read_data(file: Path) -> list[Line]:
    """The lines of a JSON Lines file. Raises `TrainerUsageError` where it is empty or unreadable, or a line invalid."""
    decode = msgspec.json.Decoder(_Line).decode
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise TrainerUsageError(f"cannot read the data file {file}: {error.strerror}") from error
    found: list[Line] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(_entry(decode(line), f"{file} line {number}"))
        except (msgspec.DecodeError, msgspec.ValidationError, ValueError, RecursionError) as error:
            raise TrainerUsageError(f"{file} line {number}: {error}; each line is {FORMS}") from error
    if not found:
        raise TrainerUsageError(f"{file} is empty; each line is {FORMS}")
    return found


def _entry(line: _Line, origin: str) -> Line:
    if line.ids is not None:
        return _recorded(line, line.ids, origin)
    if (line.messages is None) == (line.text is None):
        raise ValueError("there are both messages and text" if line.text is not None else "neither messages nor text")
    if line.text is not None:
        return Text(text=line.text)
    assert line.messages is not None
    return _conversation(line.messages, line.tools, origin)


def _conversation(messages: list[Message], tools: list[dict[str, Any]] | None, origin: str) -> Conversation:
    check_conversation(messages)
    if not any(map(is_learnt, messages)):
        raise ValueError("no assistant message, or none with a weight above 0, so there is nothing to learn")
    return Conversation(messages=messages, tools=tools, origin=origin)


def _recorded(line: _Line, ids: list[int], origin: str) -> Recorded:
    if not line.tokenizer:
        raise ValueError("ids without tokenizer, the digest of the vocabulary that they belong to")
    if not line.targets or not all(0 < start < end <= len(ids) for start, end in line.targets):
        raise ValueError(f"targets {line.targets!r:.80} are no runs [start, end] within 1 to {len(ids)}")
    if min(ids) < 0:
        raise ValueError(f"ids has the token {min(ids)}")
    chat = None if line.messages is None else _conversation(line.messages, line.tools, origin)
    return Recorded(ids=ids, targets=line.targets, tokenizer=line.tokenizer, conversation=chat, origin=origin)
