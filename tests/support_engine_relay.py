"""A relay in front of a real engine, in which a test sets the faults of the connection or of the engine.

Everything is forwarded as it came, over real sockets; an engine that dies during a request leaves the relay's client
without an answer, as it would have done without the relay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from support_http import QuietHandler, listening

Change = Callable[[str, Any], Any]  # path, JSON → JSON


class EngineRelay:
    """The relay and its faults; it starts without any."""

    def __init__(self, url: str, engine_url: str) -> None:
        self.url = url
        self.engine_url = engine_url
        self.as_it_is()

    def as_it_is(self) -> None:
        """Change nothing from now on."""
        self.of_request: Change = lambda path, body: body
        self.of_answer: Change = lambda path, body: body


@contextmanager
def engine_relay(engine_url: str) -> Iterator[EngineRelay]:
    """A relay on a free port."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self._forward("GET", None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._forward("POST", relay.of_request(self.path, body))

        def _forward(self, method: str, body: Any) -> None:
            try:
                given = httpx.request(method, relay.engine_url + self.path, json=body, timeout=None, trust_env=False)
            except httpx.TransportError:
                self.close_connection = True
                return
            content = given.content
            if given.headers.get("content-type", "").startswith("application/json"):
                content = json.dumps(relay.of_answer(self.path, given.json())).encode()
            self.answer(given.status_code, content, given.headers.get("content-type", "text/plain"))

    with listening(Handler) as url:
        relay = EngineRelay(url, engine_url)
        yield relay
