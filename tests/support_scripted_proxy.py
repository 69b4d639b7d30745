"""A proxy's control routes, scripted: what it is told while weights are exchanged, over a real socket.

Not here: calls of agents; tests of those start a real proxy (`support_proxy.py`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "the-control-key-of-tests"


class Proxy:
    """A proxy's control routes, scripted: it remembers what it was told, and refuses what a test wants refused."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.gate = "open"
        self.told: list[tuple[str, Any]] = []
        self.refuses: str | None = None
        self.on_close: Callable[[], None] = lambda: None  # called before it says that its gate is closed


@contextmanager
def scripted_proxy() -> Iterator[Proxy]:
    """A proxy on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            allowed = self.headers["authorization"] == f"Bearer {KEY}" and self.path != proxy.refuses
            if allowed:
                proxy.told.append((self.path, body))
                proxy.gate = "closed" if self.path.endswith("pause") else "open"
                if proxy.gate == "closed":
                    proxy.on_close()
            answer = json.dumps({"gate": proxy.gate}).encode()
            self.send_response(200 if allowed else 401)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield proxy
    server.shutdown()
    thread.join()
