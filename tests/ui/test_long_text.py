"""Texts of megabytes: a page shows their beginning, and the rest where somebody asks for it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect
from starlette.testclient import TestClient
from support_page import needs_chromium
from support_stores import Recording, make_call
from support_ui import serving

from weir.store.config import StoreConfig
from weir.ui.app import create_app
from weir.ui.config import UiConfig
from weir.ui.data.long_text import SHOWN_CHARACTERS

LOCAL = "http://127.0.0.1:8800"
HUGE = "a <b>line</b> of a log\n" * 250_000  # more than 5 MB
CODE = "x = 1\n" * 20_000
ANSWER = {
    "role": "assistant",
    "content": f"Look.\n```python\n{CODE}\n```",
    "reasoning_content": "Let me think. " * 10_000,
    "tool_calls": [
        {"function": {"name": "write", "arguments": json.dumps({"text": "é" * 100_000}, ensure_ascii=False)}}
    ],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreConfig:
    config = StoreConfig(root=tmp_path_factory.mktemp("run") / "store")
    recording = Recording(config, "proxy")
    request = json.dumps({"messages": [{"role": "user", "content": HUGE}]}).encode()
    answer = json.dumps(ANSWER).encode()
    for name in ("long/1", "other"):
        call = make_call(f"call {name}", [1], [2], session_id=name, group_id="g", request=request, answer=answer)
        recording.record(call)
    recording.close()
    return config


@pytest.fixture(scope="module")
def client(store: StoreConfig) -> Iterator[TestClient]:
    with TestClient(create_app(UiConfig(), store, None), base_url=LOCAL) as opened:
        yield opened


def rests(page: str) -> list[str]:
    """The addresses of the rests of a page."""
    return [html.unescape(link) for link in re.findall(r'href="(/rest\?[^"]+)" data-rest', page)]


def test_a_session_shows_the_beginnings_of_long_texts_and_its_data_has_all(client: TestClient) -> None:
    page = client.get("/session?id=" + quote("long/1", safe="")).text
    assert len(page) < 1_000_000 and "show the rest, 5,700,000 characters" in page
    texts = [client.get(link) for link in rests(page)]
    assert {told.headers["content-type"] for told in texts} == {"text/plain; charset=utf-8"}
    arguments = ANSWER["tool_calls"][0]["function"]["arguments"]  # type: ignore[index]
    wholes = (HUGE, ANSWER["reasoning_content"], CODE.removesuffix("\n") + "\n", arguments)
    assert {told.text for told in texts} == {str(whole)[SHOWN_CHARACTERS:] for whole in wholes}
    data = client.get("/session.json?id=" + quote("long/1", safe="")).json()
    assert data["calls"][0]["messages"][0]["parts"][0]["text"] == HUGE


def test_a_call_and_two_sessions_side_by_side_do_so_too(client: TestClient) -> None:
    page = client.get("/call?id=" + quote("call long/1", safe="")).text
    assert len(page) < 1_000_000 and len(rests(page)) == 2
    for link in rests(page):
        assert len(client.get(link).text) > 100_000
    both = client.get("/compare/sessions", params={"a": "long/1", "b": "other"}).text
    assert len(both) < 1_000_000 and {client.get(link).status_code for link in rests(both)} == {200}


@pytest.mark.parametrize(
    "given",
    [
        {"session": "other", "call": "call other", "at": "messages.9.parts.0.text"},
        {"session": "other", "call": "call other", "at": "messages.0.parts.zero.text"},
        {"session": "other", "call": "call other", "at": "messages"},
        {"session": "other", "call": "nobody", "at": "messages.0"},
        {"call": "call other", "at": "output_ids"},
        {"call": "nobody", "at": "request"},
        {},
    ],
)
def test_a_text_that_is_not_there_is_named(client: TestClient, given: dict[str, str]) -> None:
    told = client.get("/rest", params=given)
    assert told.status_code == 404 and "there is no" in told.text


@needs_chromium
def test_the_rest_is_shown_in_its_place_and_stays_when_the_page_is_renewed(page: Page, store: StoreConfig) -> None:
    with serving(store, refresh_s=0.2) as address:
        page.goto(f"{address}/sessions/other")
        expect(page.locator("#live-state")).to_have_text("live")
        first = page.locator(".message .prose").first
        assert len(first.text_content() or "") == SHOWN_CHARACTERS
        page.get_by_role("link", name="show the rest, 5,700,000 characters").press("Enter")
        expect(page.get_by_role("link", name="show the rest, 5,700,000 characters")).to_have_count(0)
        assert first.text_content() == HUGE and first.locator("*").count() == 0
        expect(first).to_be_focused()
        page.evaluate("document.activeElement.blur()")
        recording = Recording(store, "later")
        recording.record(make_call("call later", [1, 2, 1], [3], session_id="other", group_id="g"))
        recording.close()
        expect(page.locator("#calls > article")).to_have_count(2, timeout=120_000)
        assert first.text_content() == HUGE
