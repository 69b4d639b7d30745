"""Notices of commands that run for long, which write them to a log.

Invariant: a notice that cannot be written, as on a full disk, is lost, and ends nothing.
"""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TextIO


class Notices(io.TextIOBase):
    """Another stream, without its errors."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what can be written."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be written."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def isatty(self) -> bool:
        """Whether somebody reads along."""
        return self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream."""
        return self._stream.encoding


def notify(text: str, *, err: bool = False) -> None:
    """Print a line."""
    print(text, file=Notices(sys.stderr if err else sys.stdout), flush=True)
