"""Addresses of sessions and calls whose ids a path would not keep, as a browser follows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from support_page import needs_chromium, open_page, running_chromium
from support_stores import Recording, make_call
from support_ui import serving

from weir.store.config import StoreConfig
from weir.ui.web.addresses import call_address, session_address

ODD = (
    *("x.json", "a/b.json", "a//b", "..", ".", "a/../b", "/first", "last/", "50%", "%2e%2e", "a?b#c&d=e", "a b"),
    *("call/tokens.json", "run\\1", "naïve", "'\"<i>", "-"),
)


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("session_1", "/sessions/session_1"),
        ("run-2.5:a@b", "/sessions/run-2.5:a@b"),
        ("x.json", "/session?id=x.json"),
        ("a/b", "/session?id=a%2Fb"),
        ("..", "/session?id=.."),
        ("50%", "/session?id=50%25"),
    ],
)
def test_an_id_is_in_the_path_where_a_path_keeps_it(name: str, address: str) -> None:
    assert session_address(name) == address


def test_data_of_a_call_has_an_address_of_each_form() -> None:
    assert call_address("call_1", "/tokens.json") == "/calls/call_1/tokens.json"
    assert call_address("a/b", "/tokens.json") == "/call/tokens.json?id=a%2Fb"


@needs_chromium
def test_every_id_is_reached_by_links_from_the_table_to_the_tokens(tmp_path: Path) -> None:
    store = StoreConfig(root=tmp_path / "store")
    recording = Recording(store, "proxy")
    for name in ODD:
        recording.catalog.register_session(name, name, task={"task_id": name}, group_size=1, metadata={}, key_hash=None)
        recording.record(make_call(name, [1, 2], [3], session_id=name, group_id=name, versions=[(1, "1")]))
    recording.close()
    with serving(store) as address, running_chromium() as chromium:
        for name in ODD:
            follow(chromium, address, name)


def follow(chromium: Browser, address: str, name: str) -> None:
    """From the table of sessions to the page of the session, its task, its call, and the call's tokens."""
    with open_page(chromium) as page:
        page.goto(f"{address}/sessions")
        page.locator("tr[data-row] th").get_by_role("link", name=name, exact=True).click()
        expect(page.locator("h1")).to_have_text(name, use_inner_text=False)
        assert page.evaluate(DATA) == 200, f"the data of {name}"
        page.get_by_role("link", name="over versions").click()
        expect(page.get_by_text("One task over weight versions")).to_be_visible()
        page.go_back()
        page.get_by_role("link", name="call 1", exact=True).click()
        expect(page.locator("#tokens .strip")).to_contain_text("1 2 3")
        page.reload()
        expect(page.locator("h1")).to_have_text(name)


DATA = """async () => {
    const here = new URL(location.href);
    return (await fetch(here.pathname + ".json" + here.search)).status;
}"""
