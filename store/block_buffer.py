"""What is written next to a growing file, laid out in whole blocks from the one on in which the file ends.

Direct writes (O_DIRECT) must begin and end at blocks, in the file and in memory. Invariant: a block is written again
only with the bytes that it had and more of them, so that a torn write cannot harm what was in it.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

BLOCK = 4096


def whole_blocks(num_bytes: int) -> int:
    """The bytes of the blocks that so many bytes need."""
    return -(-num_bytes // BLOCK) * BLOCK


class BlockBuffer:
    """The same memory each time: fresh pages would cost more than the copy into them."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2**21)
        self._kept = 0  # bytes at the start that the file's last block holds already
        self._end = 0

    def begin(self, head: bytes) -> memoryview:
        """The blocks of a new file that starts with these bytes."""
        self._kept = 0
        return self.put([head])

    def put(self, parts: Sequence[bytes]) -> memoryview:
        """The blocks to be written when these parts are to follow; zeros follow them. Valid until the next call."""
        size = whole_blocks(self._kept + sum(map(len, parts)))
        if size > len(self._memory):
            kept, self._memory = self._memory[: self._kept], mmap.mmap(-1, 2 * size)
            self._memory[: self._kept] = kept
        end = self._kept
        for part in parts:
            self._memory[end : end + len(part)] = part
            end += len(part)
        self._memory[end:size] = bytes(size - end)
        self._end = end
        return memoryview(self._memory)[:size]

    def advance(self) -> None:
        """What was put is in the file: the next blocks begin with the one in which it ended."""
        start = self._end - self._end % BLOCK
        self._kept = self._end - start
        self._memory[: self._kept] = self._memory[start : self._end]
