"""Data to learn from by imitation: JSON Lines of conversations and of plain texts, and the rows that they become.

Invariant: a line is one or the other, or it is named and refused. Not here: what form a conversation must have
(`conversation_form.py`), and how lines become token ids (`chat_rows.py`, `text_rows.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from weir.store.records import TokenIds
from weir.trainer.conversation_form import check_conversation
from weir.trainer.errors import TrainerUsageError

Message = dict[str, Any]

FORMS = '{"messages": […]} or {"text": "…"}'


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A line of chat: what the assistant says is learnt."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    origin: str = "a conversation"  # its file and line, for errors


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A line of plain text: all of it is learnt."""

    text: str


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[Message] | None = None
    tools: list[dict[str, Any]] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedRow:
    """A training sequence."""

    ids: TokenIds  # (T,)
    targets: npt.NDArray[np.bool_]  # (T,); the first is never one that is trained on

    @property
    def num_targets(self) -> int:
        """How many tokens are trained on."""
        return int(self.targets[1:].sum())


def digest_of(rows: Iterable[SupervisedRow]) -> str:
    """sha256 over ids and targets, and so over data, tokenizer and renderer."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(len(row.ids).to_bytes(8, "little") + row.ids.tobytes() + row.targets.tobytes())
    return digest.hexdigest()


def is_learnt(message: Message) -> bool:
    """Whether a message's tokens are targets."""
    return message.get("role") == "assistant" and message.get("weight", 1) != 0


def read_data(file: Path) -> list[Conversation | Text]:
    """The lines of a JSON Lines file. Raises `TrainerUsageError` naming the line that is wrong."""
    decode = msgspec.json.Decoder(_Line).decode
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise TrainerUsageError(f"cannot read the data file {file}: {error.strerror}") from error
    found: list[Conversation | Text] = []
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


def _entry(line: _Line, origin: str) -> Conversation | Text:
    if (line.messages is None) == (line.text is None):
        raise ValueError("there are both messages and text" if line.text is not None else "neither messages nor text")
    if line.text is not None:
        return Text(text=line.text)
    assert line.messages is not None
    check_conversation(line.messages)
    if not any(map(is_learnt, line.messages)):
        raise ValueError("no assistant message, or none with a weight above 0, so there is nothing to learn")
    return Conversation(messages=line.messages, tools=line.tools, origin=origin)
