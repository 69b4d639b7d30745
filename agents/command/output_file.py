"""What a command printed, bounded: the first half and the last half of it are kept in a file."""

from __future__ import annotations

from collections import deque
from pathlib import Path


class OutputFile:
    """Takes what a command prints; `close` writes the end. `total` counts all of it, in bytes."""

    def __init__(self, path: Path, kept_bytes: int) -> None:
        self.total = 0
        self._half = kept_bytes // 2
        self._head = 0
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._file = path.open("wb")

    def add(self, data: bytes) -> None:
        """Keep as much of `data` as the bounds allow."""
        self.total += len(data)
        to_head = data[: self._half - self._head]
        if to_head:
            self._file.write(to_head)
            self._file.flush()
            self._head += len(to_head)
        if rest := data[len(to_head) :]:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= self._half:
                self._tail_bytes -= len(self._tail.popleft())

    def close(self) -> None:
        """Write the end, and how much between the halves is missing."""
        tail = b"".join(self._tail)[-self._half :] if self._half else b""
        left_out = self.total - self._head - len(tail)
        if left_out:
            self._file.write(f"\n[weir: {left_out} bytes left out]\n".encode())
        self._file.write(tail)
        self._file.close()
