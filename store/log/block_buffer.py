"""What is written next to a growing file, laid out in whole blocks from the one on in which the file ends.

Direct writes (O_DIRECT) must begin and end at blocks, in the file and in memory. Invariant: a block is written again
only with the bytes that it had and more of them, so that a torn write cannot harm what was in it.
"""

from __future__ import annotations

import mmap

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

    @property
    def num_added(self) -> int:
        """Bytes that wait to be written."""
        return self._end - self._kept

    def add(self, part: bytes) -> None:
        """Lay a part behind what was added before."""
        start, self._end = self._end, self._end + len(part)
        if whole_blocks(self._end) > len(self._memory):
            before, self._memory = self._memory[:start], mmap.mmap(-1, 2 * whole_blocks(self._end))
            self._memory[:start] = before
        self._memory[start : self._end] = part

    def blocks(self) -> memoryview:
        """The blocks to be written: what is kept, what was added, and zeros. Valid until the next change."""
        size = whole_blocks(self._end)
        self._memory[self._end : size] = bytes(size - self._end)
        return memoryview(self._memory)[:size]

    def advance(self) -> None:
        """The blocks were written: the next ones begin with the one in which they ended."""
        start = self._end - self._end % BLOCK
        self._memory[: self._end - start] = self._memory[start : self._end]
        self._kept = self._end = self._end - start

    def drop(self) -> None:
        """Forget what was added."""
        self._end = self._kept

    def begin(self, head: bytes) -> None:
        """What was added goes to a new file, behind these bytes."""
        added = self._memory[self._kept : self._end]
        self._kept = self._end = 0
        self.add(head)
        self.add(added)
        self._kept = len(head)
