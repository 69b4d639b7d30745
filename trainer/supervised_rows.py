"""Lines of conversations and texts to rows of at most so many tokens; what does not fit is counted before training.

Invariant: a conversation's row that is too long is left out whole; a text is cut. Renderer and tokenizer are opened
when the first line asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from weir.trainer.chat_rows import ChatRenderer, conversation_rows
from weir.trainer.errors import TrainerUsageError
from weir.trainer.supervised_data import Conversation, SupervisedRow, Text
from weir.trainer.users_code import in_a_line

OpenRenderer = Callable[[], ChatRenderer]


class RowMaker:
    """Makes rows for the model of a folder; `num_too_long` of them were left out."""

    def __init__(self, model: Path, open_renderer: OpenRenderer | None, max_tokens: int) -> None:
        self.model = model
        self.max_tokens = max_tokens
        self.num_too_long = 0
        self._open_renderer = open_renderer

    def rows(self, line: Conversation | Text) -> Sequence[SupervisedRow]:
        """The rows of a line that fit. Raises `TrainerUsageError` where nothing can render it, naming the line."""
        if isinstance(line, Text):
            from weir.trainer.text_rows import text_rows

            return text_rows(line, self._encode, self.max_tokens)
        made = self._rendered(line, self._renderer)
        fitting = [row for row in made if len(row.ids) <= self.max_tokens]
        self.num_too_long += len(made) - len(fitting)
        return fitting

    def _rendered(self, line: Conversation, renderer: ChatRenderer) -> list[SupervisedRow]:
        try:
            return conversation_rows(line, renderer)
        except Exception as error:  # a renderer has a form of its own, and errors of every kind for what has not
            raise TrainerUsageError(f"{line.origin} cannot be rendered for this model: {in_a_line(error)}") from error

    @cached_property
    def _renderer(self) -> ChatRenderer:
        if self._open_renderer is None:
            raise TrainerUsageError("conversations need the renderer of the model's family: give the trainer one")
        return self._open_renderer()

    @cached_property
    def _encode(self) -> Callable[[str], list[int]]:
        from weir.trainer.text_rows import open_encoder

        return open_encoder(self.model)
