"""Grammars: the tokens that may come next, so that an output keeps to a JSON schema, a regular expression or a grammar.

llguidance reads them and finds the allowed tokens. Invariants: a matcher has consumed the request's whole output but
its stop id; some token is always allowed, a stop id wherever the text may end and nowhere else. Building one costs
milliseconds and bounded memory: what is too complex is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Literal

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer, grammar_from

from weir.engine.errors import BadRequest
from weir.engine.params import SamplingParams

Kind = Literal["json_schema", "regex", "ebnf"]
KINDS: tuple[Kind, ...] = ("json_schema", "regex", "ebnf")  # by SGLang's names; ebnf takes GBNF and Lark
# White space between the parts of JSON: without a limit, small models write it until their tokens are used up.
_WHITESPACE = r"[ \n\r\t]{1,32}"


class Matcher:
    """A grammar and how far a request's output has come in it. One thread at a time uses it."""

    def __init__(self, matcher: LLMatcher, vocab_size: int, stop_ids: Collection[int]) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._stop_ids = sorted(stop_ids)

    @property
    def error(self) -> str | None:
        """Why no token can be allowed any more; None where all is well."""
        return self._matcher.get_error().partition("\n")[0] or None

    def forbidden(self) -> torch.Tensor:
        """The tokens that may not come next, (vocabulary,) bool; with an error, all but the stop ids."""
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        forbidden = np.unpackbits(packed, count=self._vocab_size, bitorder="little") == 0
        if self.error is not None or self._matcher.is_accepting():
            forbidden[self._stop_ids] = False
        return torch.from_numpy(forbidden)

    def consume(self, token: int) -> None:
        """Advance by a drawn token."""
        self._matcher.consume_token(token)


class Grammars:
    """Builds matchers for one tokenizer."""

    def __init__(self, tokenizer: str | None, vocab_size: int, eos_ids: Collection[int]) -> None:
        """`tokenizer` is the JSON of a fast tokenizer; None: the model has none, and every grammar is refused."""
        self._serialized = tokenizer
        self._vocab_size = vocab_size
        self._eos_ids = sorted(eos_ids)
        self._tokenizer: LLTokenizer | None = None
        self._lock = threading.Lock()

    @property
    def available(self) -> bool:
        """Whether grammars can be kept at all."""
        return self._serialized is not None and bool(self._eos_ids)

    def compile(self, params: SamplingParams | None) -> LLMatcher | None:
        """The grammar that sampling parameters ask for, at its start; None without one. Raises BadRequest."""
        asked = [(kind, text) for kind in KINDS if params is not None and (text := getattr(params, kind)) is not None]
        if not asked:
            return None
        if len(asked) > 1:
            raise BadRequest(f"Only one of {', '.join(KINDS)} can be set, got {', '.join(kind for kind, _ in asked)}.")
        if not self.available:
            raise BadRequest("Grammars need a tokenizer with an end-of-turn token, and the model folder has none.")
        (kind, text), tokenizer = asked[0], self._loaded()
        try:
            matcher = LLMatcher(tokenizer, _serialized(kind, text), log_level=0)
        except ValueError as error:
            raise BadRequest(f"{kind} cannot be read: {error}") from error
        if matcher.is_error():
            raise BadRequest(f"{kind} cannot be kept: {matcher.get_error()}")  # says where in the grammar
        return matcher

    def begin(self, grammar: LLMatcher | None, stop_ids: Collection[int]) -> Matcher | None:
        """The matcher of a new request that ends at `stop_ids`, which hold the model's end-of-turn ids."""
        return None if grammar is None else Matcher(grammar, self._vocab_size, stop_ids)

    def _loaded(self) -> LLTokenizer:
        """The tokenizer's words as llguidance holds them, built when they are first needed."""
        with self._lock:
            if self._tokenizer is None:
                assert self._serialized is not None
                self._tokenizer = LLTokenizer(self._serialized, n_vocab=self._vocab_size, eos_token=self._eos_ids)
            return self._tokenizer


def _serialized(kind: Kind, text: str) -> str:
    """A grammar in llguidance's form. Raises ValueError."""
    if kind == "json_schema":
        return LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_pattern": _WHITESPACE})
    return grammar_from(kind, text)
