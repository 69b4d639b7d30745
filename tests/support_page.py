"""Chromium on a page: the browser that Debian packages, driven by Playwright, and a small server for the page's client.

Whatever the browser complains of (an error in a script, a violation of the content-security policy) fails the test.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from support_http import QuietHandler

from weir.ui.web.guard import HEADERS

STATIC = Path(__file__).parents[1] / "ui" / "static"
CHROMIUM = shutil.which("chromium")
TYPES = {".js": "text/javascript", ".css": "text/css", ".json": "application/json"}
POLICY = HEADERS["content-security-policy"]

PATIENCE_MS = 120_000  # of a machine that is busy with other tests
expect.set_options(timeout=PATIENCE_MS)

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt-get install chromium)")


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Chromium without a window. Not for a whole session: no event loop can run in this thread beside Playwright's."""
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@contextmanager
def open_page(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page in a context of its own, with the options of a context; at the end nothing may have gone wrong in it."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    yield page
    seen = wrong.copy()  # closing breaks off what is still being loaded
    context.close()
    unexpected = [text for text in seen if "Failed to load resource" not in text]  # what tests take away on purpose
    assert not unexpected, unexpected


class ClientServer:
    """Serves ui/static, and pages and data that a test gives, under the policy that the page is served with.

    It can be stopped and started again at the same port, as a real server would be.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}  # by path: text is HTML, anything else JSON, an int the status of a failure
        self.requests: list[str] = []
        self._viewers: list[queue.Queue[bytes | None]] = []
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        """Of the page "/"."""
        return f"http://127.0.0.1:{self._port}"

    def show(self, main: str, path: str = "/") -> None:
        """Give a page with this content."""
        self.answers[path] = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Weir</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
            '<link rel="stylesheet" href="/static/style.css">'
            '<link rel="stylesheet" href="/static/vendor/uplot-1.6.32/uPlot.min.css">'
            '<script type="module" src="/static/app.js"></script></head><body>'
            '<header><p><span id="live-state" role="status" data-seen="3-1"></span></p></header>'
            f'<main id="main">{main}</main>'
            '<dialog id="keys" aria-label="Keys"><form method="dialog"><button>Close</button></form></dialog>'
            "</body></html>"
        )

    def changed(self) -> None:
        """Say to every viewer that something changed."""
        for viewer in self._viewers:
            viewer.put(b'event: changed\ndata: {"as_of": "now", "calls": 1}\n\n')

    def start(self) -> None:
        """Listen, at the same port as before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and all connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for viewer in self._viewers:
            viewer.put(None)
        self._viewers.clear()

    def follow(self) -> Iterator[bytes]:
        """The events of one viewer."""
        events: queue.Queue[bytes | None] = queue.Queue()
        self._viewers.append(events)
        yield b"retry: 100\n\n"
        while (event := events.get()) is not None:
            yield event


def _handler(server: ClientServer) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def end_headers(self) -> None:
            self.send_header("content-security-policy", POLICY)
            super().end_headers()

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            server.requests.append(self.path)
            if path == "/live" and path not in server.answers:
                self.follow()
            elif path.startswith("/static/") and (file := STATIC / path.removeprefix("/static/")).is_file():
                self.answer(200, file.read_bytes(), TYPES.get(file.suffix, "text/plain"))
            else:
                self.given(server.answers.get(path, 404))

        def given(self, answer: Any) -> None:
            if isinstance(answer, int):
                self.answer(answer, b"no such thing", "text/plain")
            elif isinstance(answer, str):
                self.answer(200, answer.encode(), "text/html; charset=utf-8")
            else:
                self.answer(200, json.dumps(answer).encode())

        def follow(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            try:
                for event in server.follow():
                    self.wfile.write(event)
                    self.wfile.flush()
            except OSError:
                pass  # the viewer has left

    return Handler
