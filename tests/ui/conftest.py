"""Fixtures of the page's tests: Chromium, a page in it, and a server for the client alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from support_page import ClientServer, open_page, running_chromium


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser; one for each file, because it cannot share a thread with the event loops of other tests."""
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """An empty page; the test fails if its browser complains."""
    with open_page(chromium) as opened:
        yield opened


@pytest.fixture
def server() -> Iterator[ClientServer]:
    """A server that gives the client's files, and pages and data of the test."""
    server = ClientServer()
    yield server
    server.stop()
