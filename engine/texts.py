"""Tokenization: the model folder's tokenizer, and incremental decoding of an output.

Invariant: the text of `GrowingText` only grows and ends as the text of all ids; a character with missing bytes is
withheld until they arrive, or until the end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weir.engine.request import Finish

_INCOMPLETE = "\ufffd"


class Texts:
    """The folder's tokenizer, if it has one; without it, only ids are served."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer: Any = None
        self.eos_id: int | None = None
        if (folder / "tokenizer.json").exists() or (folder / "tokenizer_config.json").exists():
            from transformers import AutoTokenizer

            loaded = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
            self.eos_id = loaded.eos_token_id
            self._tokenizer = loaded.backend_tokenizer

    @property
    def available(self) -> bool:
        """Whether there is a tokenizer."""
        return self._tokenizer is not None

    @property
    def serialized(self) -> str | None:
        """The tokenizer as JSON; None without one."""
        return None if self._tokenizer is None else str(self._tokenizer.to_str())

    def encode(self, text: str) -> list[int]:
        """The ids of a text prompt, with the special tokens that the tokenizer adds."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def decode(self, ids: list[int], *, skip_special: bool) -> str:
        """The text of `ids`; empty without a tokenizer."""
        if not ids or not self.available:
            return ""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=skip_special)
        return text


class GrowingText:
    """Incremental decoding of one output."""

    def __init__(self, texts: Texts, *, skip_special: bool) -> None:
        self._texts = texts
        self._skip_special = skip_special
        self._context = 0  # decoding starts here, so that a piece is decoded with its context
        self._done = 0  # ids before this are in `_text`
        self._text = ""

    def read(self, ids: list[int], *, final: bool) -> str:
        """The text of the whole output so far, without an incomplete character at its end."""
        known = self._texts.decode(ids[self._context : self._done], skip_special=self._skip_special)
        piece = self._texts.decode(ids[self._context :], skip_special=self._skip_special)[len(known) :]
        if not final and piece.endswith(_INCOMPLETE):
            return self._text + piece.rstrip(_INCOMPLETE)
        self._context, self._done = self._done, len(ids)
        self._text += piece
        return self._text


def visible_ids(ids: list[int], finish: Finish | None, *, no_stop_trim: bool) -> list[int]:
    """The ids to decode: without a matched stop id, unless the client wants it."""
    if finish is not None and isinstance(finish.get("matched"), int) and not no_stop_trim:
        return ids[:-1]
    return ids


def trim_stop(text: str, finish: Finish | None, *, no_stop_trim: bool) -> str:
    """Cut the text before a matched stop string, or after it with `no_stop_trim`."""
    matched = finish.get("matched") if finish is not None else None
    if not isinstance(matched, str):
        return text
    head, found, _ = text.partition(matched)
    return head + found if no_stop_trim else head
