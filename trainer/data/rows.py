"""Makes training rows of at most `max_tokens` tokens from conversations and texts.

Invariant: a conversation's row that is too long is dropped whole and counted. A text is cut into consecutive pieces,
followed by the end-of-text token, and never dropped; all its tokens but a piece's first are targets. Renderer and
tokenizer are opened when the first line needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from weir.trainer.data.chat_rows import ChatRenderer, conversation_rows
from weir.trainer.data.dataset import Conversation, Line, Recorded, SupervisedRow, Text
from weir.trainer.data.recorded_rows import model_digest, recorded_row
from weir.trainer.errors import TrainerUsageError
from weir.trainer.import_path import in_a_line

Encode = Callable[[str], list[int]]


def open_encoder(model: Path) -> Encode:
    """A function from text to token ids, end-of-text token included, by the tokenizer of a model folder.

    Raises `TrainerUsageError` where the folder has no tokenizer that loads.
    """
    from transformers import AutoTokenizer  # slow to import, and only plain text needs it

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(model, local_files_only=True)
    except (OSError, ValueError) as error:
        raise TrainerUsageError(f"{model} has no tokenizer that loads, which plain text needs: {error}") from error
    end = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    return lambda text: [*tokenizer.encode(text, add_special_tokens=False), *end]


def text_rows(text: Text, encode: Encode, max_tokens: int) -> list[SupervisedRow]:
    """The rows of a text: as few pieces of at most `max_tokens` tokens as possible."""
    ids = np.asarray(encode(text.text), dtype=np.int32)
    pieces = [ids[start : start + max_tokens] for start in range(0, len(ids), max_tokens)]
    return [SupervisedRow(ids=piece, targets=np.ones(len(piece), dtype=np.bool_)) for piece in pieces if len(piece) > 1]


OpenRenderer = Callable[[], ChatRenderer]


class RowMaker:
    """Makes rows for the model of a folder; `num_too_long` counts the rows that were dropped.

    `num_texts_cut` counts texts of which several rows were made,
    `num_exact` lines whose recorded ids are the row, `num_rendered_again` those with ids of another vocabulary.
    """

    def __init__(self, model: Path, open_renderer: OpenRenderer | None, max_tokens: int) -> None:
        self.model = model
        self.max_tokens = max_tokens
        self.num_too_long = 0
        self.num_texts_cut = 0
        self.num_exact = 0
        self.num_rendered_again = 0
        self._open_renderer = open_renderer

    def rows(self, line: Line) -> Sequence[SupervisedRow]:
        """The rows of a line that fit. Raises `TrainerUsageError`, naming the line, where it cannot be rendered."""
        if isinstance(line, Text):
            pieces = text_rows(line, self._encode, self.max_tokens)
            self.num_texts_cut += len(pieces) > 1
            return pieces
        made = self._recorded(line) if isinstance(line, Recorded) else self._rendered(line, self._renderer)
        fitting = [row for row in made if len(row.ids) <= self.max_tokens]
        self.num_too_long += len(made) - len(fitting)
        return fitting

    def _recorded(self, line: Recorded) -> list[SupervisedRow]:
        if line.tokenizer == model_digest(self.model):
            self.num_exact += 1
            return [recorded_row(line)]
        if line.conversation is None:
            raise TrainerUsageError(
                f"{line.origin} has ids of the vocabulary {line.tokenizer} and no messages, and {self.model} has "
                "another vocabulary; train the model that was recorded"
            )
        self.num_rendered_again += 1
        return self._rendered(line.conversation, self._renderer)

    def _rendered(self, line: Conversation, renderer: ChatRenderer) -> list[SupervisedRow]:
        try:
            return conversation_rows(line, renderer)
        except Exception as error:  # renderers raise arbitrary exceptions on unexpected input
            raise TrainerUsageError(f"{line.origin} cannot be rendered for this model: {in_a_line(error)}") from error

    @cached_property
    def _renderer(self) -> ChatRenderer:
        if self._open_renderer is None:
            raise TrainerUsageError("conversations need the renderer of the model's family: give the trainer one")
        return self._open_renderer()

    @cached_property
    def _encode(self) -> Callable[[str], list[int]]:
        return open_encoder(self.model)
