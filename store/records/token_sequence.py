"""Token ids with chained hashes over their blocks, so that a prefix shared by sequences is hashed once.

Invariants: element k of the hashes covers the first 256·k tokens. Hashes are stored, so they depend on the tokens alone
and never change.
"""

from __future__ import annotations

import numpy as np
from xxhash import xxh3_128_digest

from weir.store.records.call_record import TokenIds

BLOCK = 256  # tokens
SEED = 0x57656972
_STEP = 4 * BLOCK  # bytes
_NOTHING = xxh3_128_digest(b"", SEED)


class TokenSequence:
    """Immutable ids, packed as little-endian int32, and their block hashes."""

    __slots__ = ("data", "end_hash", "hashes")
    data: bytes
    hashes: list[bytes]
    end_hash: bytes

    def __init__(self, data: bytes, before: TokenSequence | None = None) -> None:
        """`before` is a sequence that these ids may begin with; where they do, its hashes are reused."""
        shared = before.hashes if before is not None and data.startswith(before.data) else [_NOTHING]
        hashes = shared.copy()
        for start in range(_STEP * (len(shared) - 1), len(data) - _STEP + 1, _STEP):
            hashes.append(xxh3_128_digest(hashes[-1] + data[start : start + _STEP], SEED))
        self.data = data
        self.hashes = hashes
        self.end_hash = xxh3_128_digest(hashes[-1] + data[_STEP * (len(hashes) - 1) :], SEED)

    def __len__(self) -> int:
        return len(self.data) // 4

    def hash_of(self, length: int) -> bytes:
        """The hash of the first `length` tokens."""
        full = length // BLOCK
        return xxh3_128_digest(self.hashes[full] + self.data[full * _STEP : 4 * length], SEED)

    def begins_with(self, other: TokenSequence) -> bool:
        """Whether the other sequence is a prefix of this one."""
        return self.data.startswith(other.data)

    def ids(self, start: int, end: int) -> TokenIds:
        """Tokens `start:end`, shape (T,), read-only."""
        return np.frombuffer(self.data, "<i4", count=end - start, offset=4 * start)
