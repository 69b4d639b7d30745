"""The ledger: one JSON line for every token that was drawn, the truth that records are held against.

Invariant: the lines of a step are with the operating system (one write) before anybody is told of its tokens, so
kill -9 loses no token that left the engine. It does not survive a power cut: nothing is synced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from weir.engine.request import Request


class Ledger:
    """Appends to one file; one thread owns it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, requests: Sequence[Request], version: str) -> None:
        """Append the newest token of each request."""
        name = json.dumps(version)
        lines = "".join(
            f'{{"rid": {json.dumps(request.rid)}, "position": {len(request.output_ids) - 1}, '
            f'"token": {request.output_ids[-1]}, "logprob": {request.logprobs[-1]!r}, "version": {name}}}\n'
            for request in requests
        )
        left = lines.encode()
        while left:
            left = left[os.write(self._fd, left) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
