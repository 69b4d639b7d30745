"""A proxy's control routes, scripted: the requests it gets while weights are exchanged, over a real socket.

Not here: calls of agents; tests of those start a real proxy (`support_proxy.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from support_http import QuietHandler, listening

KEY = "the-control-key-of-tests"


class Proxy:
    """A proxy's control routes, scripted: it remembers what it was told, and refuses what a test wants refused."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.gate = "open"
        self.told: list[tuple[str, Any]] = []
        self.times_closed = 0
        self.times_renewed = 0
        self.closed_s = 0.0  # how long the last time
        self.refuses: str | None = None
        self.on_close: Callable[[], None] = lambda: None  # called before it says that its gate is closed
        self._since_s = 0.0

    def turn(self, gate: str) -> None:
        """The gate closes or opens."""
        now = time.monotonic()
        if gate == "closed" and self.gate == "open":
            self._since_s, self.times_closed = now, self.times_closed + 1
        elif gate == "open" and self.gate == "closed":
            self.closed_s = now - self._since_s
        self.gate = gate


@contextmanager
def scripted_proxy() -> Iterator[Proxy]:
    """A proxy on a free port."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            allowed = self.headers["authorization"] == f"Bearer {KEY}" and self.path != proxy.refuses
            if allowed and body.pop("renews", False):
                proxy.times_renewed += 1
            elif allowed:
                proxy.told.append((self.path, body))
                proxy.turn("closed" if self.path.endswith("pause") else "open")
                if proxy.gate == "closed":
                    proxy.on_close()
            answer = json.dumps({"gate": proxy.gate}).encode()
            self.answer(200 if allowed else 401, answer)

    with listening(Handler) as url:
        proxy = Proxy(url)
        yield proxy
