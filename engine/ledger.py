"""The ledger: a log of one JSON line for every sampled token, for comparison with records.

Invariant: the lines of a step are written to the operating system, in one write, before a request holds its tokens.
Answers are built from a request's tokens, on another thread and at any time, so kill -9 loses no token that left the
engine. Nothing is synced: a power cut may lose lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from weir.engine.batch import Drawn
from weir.engine.request import Request


class Ledger:
    """Appends to one file; one thread owns it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, requests: Sequence[Request], drawn: Drawn, version: str) -> None:
        """Append the token sampled for each request, before the request holds it."""
        name = json.dumps(version)
        lines = "".join(
            f'{{"rid": {json.dumps(request.rid)}, "position": {len(request.output_ids)}, '
            f'"token": {token}, "logprob": {logprob!r}, "version": {name}}}\n'
            for request, token, logprob in zip(requests, drawn.tokens, drawn.logprobs, strict=True)
        )
        left = lines.encode()
        while left:
            left = left[os.write(self._fd, left) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
