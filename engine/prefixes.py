"""Keys and values of finished requests, kept for prompts that begin alike: a session's next turn, a group's sessions.

Invariant: what is kept was computed from exactly the tokens it is kept for, under the served weights; whoever changes
these clears it. The least recently used sequences leave beyond a number of tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from weir.engine.kv_cache import CachedTokens

_LEAST_TOKENS = 8192
_USUAL_BYTES = 2 * 2**30


def usual_num_tokens(context_len: int, token_bytes: int) -> int:
    """How many tokens are kept where nobody says: a whole request, so that a session's next turn finds all of it."""
    return max(_LEAST_TOKENS, min(context_len, _USUAL_BYTES // token_bytes))


class KeptPrefixes:
    """Sequences of tokens with what the cache holds of them."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._kept: OrderedDict[tuple[int, ...], CachedTokens] = OrderedDict()
        self._num_tokens = 0

    @property
    def max_tokens(self) -> int:
        """The most tokens that are kept; 0: nothing is."""
        return self._max_tokens

    def keep(self, tokens: Sequence[int], cached: CachedTokens) -> None:
        """Keep a sequence in place of those that it continues; one that is too long alone is not kept."""
        key = tuple(tokens)
        if len(key) > self._max_tokens:
            return
        for shorter in [kept for kept in self._kept if kept == key[: len(kept)]]:
            self._drop(shorter)
        self._kept[key] = cached
        self._num_tokens += len(key)
        while self._num_tokens > self._max_tokens:
            self._drop(next(iter(self._kept)))

    def longest(self, prompt: Sequence[int]) -> tuple[CachedTokens | None, int]:
        """The kept sequence with the longest common beginning, and its length; None and 0 where there is none."""
        found, length = longest_common(prompt, self._kept)
        if found is None:
            return None, 0
        self._kept.move_to_end(found)
        return self._kept[found], length

    def clear(self) -> None:
        """Drop all."""
        self._kept.clear()
        self._num_tokens = 0

    def _drop(self, key: tuple[int, ...]) -> None:
        del self._kept[key]
        self._num_tokens -= len(key)


def longest_common(prompt: Sequence[int], sequences: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...] | None, int]:
    """The sequence with the longest common beginning with `prompt`, and that beginning's length."""
    best, best_length = None, 0
    wanted = tuple(prompt)
    for sequence in sequences:
        if sequence[: best_length + 1] == wanted[: best_length + 1]:
            length = common_length(wanted, sequence)
            if length > best_length:
                best, best_length = sequence, length
    return best, best_length


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many first items are equal."""
    for place, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return place
    return min(len(left), len(right))
