"""The text of token ids, for reading in SQL; training uses the ids, never this text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from weir.store.errors import QueryRefused

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def reader_of_text(folder: Path | None) -> Callable[[list[int]], str]:
    """A function from ids to text, by the tokenizer.json of a folder, which is read on the first call.

    The function raises QueryRefused where no folder was given, or it has no tokenizer.
    """
    loaded: list[Tokenizer] = []

    def text(ids: list[int]) -> str:
        if not loaded:
            loaded.append(_load(folder))
        return str(loaded[0].decode([int(i) for i in ids], skip_special_tokens=False))

    return text


def _load(folder: Path | None) -> Tokenizer:
    from tokenizers import Tokenizer

    if folder is None:
        raise QueryRefused(
            "token_text needs the model's tokenizer: weir sql --tokenizer DIR, or connect(…, tokenizer=DIR)"
        )
    if not (folder / "tokenizer.json").exists():
        raise QueryRefused(f"there is no tokenizer.json in {folder}: name the folder of the model's weights")
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
