"""Makes training rows from conversations: the token ids that the proxy would send and the engine would sample.

Invariant: a row's targets are exactly the assistant's tokens and its end of turn, except in messages whose `weight`
is 0 (OpenAI's fine-tuning format). A later turn extends the row by the renderer's bridge, or by its full rendering
where that begins with the row's exact ids; else the turn starts a new row. The proxy does the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from weir.trainer.data.dataset import Conversation, Message, SupervisedRow, is_learnt
from weir.trainer.errors import TrainerUsageError


class Rendered(Protocol):
    """A renderer's result, of which only the token ids are read."""

    @property
    def token_ids(self) -> list[int]: ...


class ChatRenderer(Protocol):
    """The methods of a `renderers.Renderer` that are used here."""

    def render(self, messages: Any, *, tools: Any = None, add_generation_prompt: bool = False) -> Rendered: ...

    def bridge_to_next_turn(
        self, previous_prompt_ids: Any, previous_completion_ids: Any, new_messages: Any, *, tools: Any = None
    ) -> Rendered | None: ...

    def get_stop_token_ids(self) -> list[int]: ...


def conversation_rows(conversation: Conversation, renderer: ChatRenderer) -> list[SupervisedRow]:
    """The rows of one conversation: one, or several where the renderer cannot extend a turn; none without targets.

    Raises `TrainerUsageError` where the renderer does not append an answer to its own prompt.
    """
    rows = [_row(turns) for turns in _rows_of_turns(conversation, renderer)]
    return [row for row in rows if row.num_targets]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    prompt: list[int]
    answer: list[int]
    learnt: bool


def _rows_of_turns(conversation: Conversation, renderer: ChatRenderer) -> Iterator[list[_Turn]]:
    """Turns, grouped into runs that extend each other exactly."""
    messages, tools = conversation.messages, conversation.tools
    turns: list[_Turn] = []
    after = 0
    for index in (i for i, message in enumerate(messages) if message.get("role") == "assistant"):
        answer = _answer(messages[: index + 1], tools, renderer)
        bridged = _bridge(turns[-1], messages[after:index], tools, renderer) if turns else None
        prompt = bridged or _prompt(messages[:index], tools, renderer)
        if turns and not _extends(prompt, turns[-1]):
            yield turns
            turns = []
        turns.append(_Turn(prompt=prompt, answer=answer, learnt=is_learnt(messages[index])))
        after = index + 1
    yield turns


def _prompt(messages: Sequence[Message], tools: Any, renderer: ChatRenderer) -> list[int]:
    return list(renderer.render(list(messages), tools=tools, add_generation_prompt=True).token_ids)


def _answer(messages: Sequence[Message], tools: Any, renderer: ChatRenderer) -> list[int]:
    """The ids that the model has to sample behind the prompt of the last message, end of turn included."""
    prompt = _prompt(messages[:-1], tools, renderer)
    full = list(renderer.render(list(messages), tools=tools).token_ids)
    if full[: len(prompt)] != prompt:
        raise TrainerUsageError(
            "the renderer does not append an answer to its own prompt; choose another proxy.renderer or proxy.thinking"
        )
    answer = full[len(prompt) :]
    stops = set(renderer.get_stop_token_ids())
    ends = [position for position, token in enumerate(answer) if token in stops]
    return answer[: ends[-1] + 1] if ends else answer


def _bridge(turn: _Turn, new_messages: list[Message], tools: Any, renderer: ChatRenderer) -> list[int] | None:
    bridged = (
        renderer.bridge_to_next_turn(turn.prompt, turn.answer, new_messages, tools=tools) if new_messages else None
    )
    return list(bridged.token_ids) if bridged and _extends(bridged.token_ids, turn) else None


def _extends(prompt: list[int], turn: _Turn) -> bool:
    """Whether a prompt begins with the exact ids of a turn: bridged, or because the full rendering happens to."""
    known = turn.prompt + turn.answer
    return prompt[: len(known)] == known


def _row(turns: list[_Turn]) -> SupervisedRow:
    ids = turns[-1].prompt + turns[-1].answer
    targets = np.zeros(len(ids), dtype=np.bool_)
    for turn in turns:
        targets[len(turn.prompt) : len(turn.prompt) + len(turn.answer)] = turn.learnt
    return SupervisedRow(ids=np.asarray(ids, dtype=np.int32), targets=targets)
