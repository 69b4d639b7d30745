"""Which tokenizer token ids are of: a digest of what each id stands for.

Invariant: it follows from the ids and their tokens alone, so a tokenizer that was written anew in another form, or by
another version of its library, has the digest that it had; two that read any id otherwise have two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec


def vocabulary_digest(vocabulary: Mapping[str, int]) -> str:
    """16 hexadecimal digits of sha256 over the tokens in the order of their ids."""
    tokens = sorted((number, token) for token, number in vocabulary.items())
    return hashlib.sha256(msgspec.json.encode(tokens)).hexdigest()[:16]
