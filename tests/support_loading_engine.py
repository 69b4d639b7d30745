"""Engines that only take weights: the control routes of SGLang that a publish uses, over a real socket.

The test sets what it does wrong on a load request; it keeps the requests in order.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from support_http import QuietHandler, listening

Fault = Literal["hangs", "refuses", "breaks", "reports_another_version"]


class LoadingEngine:
    """One engine: what it serves, whether it is paused, and what it was told."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.version = "0"
        self.paused = False
        self.fault: Fault | None = None
        self.refuses: str | None = None  # a path that is answered with an error
        self.slow_s: dict[str, float] = {}  # path → what an answer takes
        self.told: list[str] = []
        self.hung = threading.Event()
        self.let_go = threading.Event()

    def reply(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of an answer."""
        self.told.append(path.removeprefix("/"))
        time.sleep(self.slow_s.get(path, 0.0))
        if path == self.refuses:
            return 500, {"error": "busy"}
        if path == "/pause_generation":
            self.paused = True
        elif path == "/continue_generation":
            self.paused = False
        elif path == "/update_weights_from_disk":
            return self._load(body)
        elif path == "/model_info":
            wrong = self.fault == "reports_another_version"
            return 200, {"weight_version": "another" if wrong else self.version}
        return 200, {}

    def _load(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.fault == "hangs":
            self.hung.set()
            self.let_go.wait()
        if self.fault == "breaks":
            return 500, {"error": "out of memory"}
        if self.fault == "refuses":
            return 200, {"success": False, "message": "the shapes differ"}
        assert body["flush_cache"] is True
        assert (Path(body["model_path"]) / "model.safetensors").exists()
        self.version = body["weight_version"]
        return 200, {"success": True}


@contextmanager
def loading_engine() -> Iterator[LoadingEngine]:
    """An engine on a free port."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def do_GET(self) -> None:
            self._answer({})

        def _answer(self, body: dict[str, Any]) -> None:
            status, value = engine.reply(self.path, body)
            answer = json.dumps(value).encode()
            self.answer(status, answer)

    with listening(Handler) as url:
        engine = LoadingEngine(url)
        yield engine
        engine.let_go.set()
