"""The memory from which direct writes (O_DIRECT) append to a growing file.

Direct writes begin and end at block borders, in the file and in memory. Invariant: a block is written again only with
the bytes that it had and more after them, so that a torn write cannot damage earlier ones.
"""

from __future__ import annotations

import mmap

BLOCK = 4096


def whole_blocks(num_bytes: int) -> int:
    """`num_bytes` rounded up to whole blocks."""
    return -(-num_bytes // BLOCK) * BLOCK


class BlockBuffer:
    """A reused buffer: fresh pages would cost more than copying into them."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2**21)
        self._kept = 0  # bytes at the start that the file's last block holds already
        self._end = 0

    @property
    def num_added(self) -> int:
        """Bytes that wait to be written."""
        return self._end - self._kept

    def add(self, part: bytes) -> None:
        """Append bytes behind those added before."""
        start, self._end = self._end, self._end + len(part)
        if whole_blocks(self._end) > len(self._memory):
            before, self._memory = self._memory[:start], mmap.mmap(-1, 2 * whole_blocks(self._end))
            self._memory[:start] = before
        self._memory[start : self._end] = part

    def blocks(self) -> memoryview:
        """The blocks to write: kept bytes, added bytes, and zeros. Valid until the next change."""
        size = whole_blocks(self._end)
        self._memory[self._end : size] = bytes(size - self._end)
        return memoryview(self._memory)[:size]

    def advance(self) -> None:
        """Continue behind the blocks just written: the last, partial one is kept."""
        start = self._end - self._end % BLOCK
        self._memory[: self._end - start] = self._memory[start : self._end]
        self._kept = self._end = self._end - start

    def drop(self) -> None:
        """Discard the added bytes."""
        self._end = self._kept

    def begin(self, head: bytes) -> None:
        """Start a new file with these bytes; bytes added before follow them."""
        added = self._memory[self._kept : self._end]
        self._kept = self._end = 0
        self.add(head)
        self.add(added)
        self._kept = len(head)
