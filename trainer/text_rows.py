"""Plain text to training rows: every token is a target, but for the first, before which there is nothing.

Invariant: the pieces of a text are its tokens in their order, the end-of-text token behind the last; no text is left
out for its length.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from weir.trainer.errors import TrainerUsageError
from weir.trainer.supervised_data import SupervisedRow, Text

Encode = Callable[[str], list[int]]


def open_encoder(model: Path) -> Encode:
    """Text to token ids by the tokenizer of a model folder, its end-of-text token behind them."""
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(model, local_files_only=True)
    except (OSError, ValueError) as error:
        raise TrainerUsageError(f"{model} has no tokenizer that loads, which plain text needs: {error}") from error
    end = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    return lambda text: [*tokenizer.encode(text, add_special_tokens=False), *end]


def text_rows(text: Text, encode: Encode, max_tokens: int) -> list[SupervisedRow]:
    """The rows of a text: as few pieces of at most `max_tokens` as it takes."""
    ids = np.asarray(encode(text.text), dtype=np.int32)
    pieces = [ids[start : start + max_tokens] for start in range(0, len(ids), max_tokens)]
    return [SupervisedRow(ids=piece, targets=np.ones(len(piece), dtype=np.bool_)) for piece in pieces if len(piece) > 1]
