"""A digest of the vocabulary that token ids refer to.

Invariant: it depends only on the ids and their tokens, so a tokenizer saved in another format, or by another version of
its library, keeps its digest; tokenizers that read any id differently have different ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec


def vocabulary_digest(vocabulary: Mapping[str, int]) -> str:
    """16 hexadecimal digits of the sha256 over the tokens in the order of their ids."""
    tokens = sorted((number, token) for token, number in vocabulary.items())
    return hashlib.sha256(msgspec.json.encode(tokens)).hexdigest()[:16]
