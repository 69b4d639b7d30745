"""Keys alone: rows, pages, search and help; and none of it while somebody types."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect
from support_page import ClientServer, needs_chromium

pytestmark = needs_chromium

MAIN = (
    '<input data-search aria-label="WHERE" value="reward">'
    + "".join(f'<p data-row><a href="/row/{row}">row {row}</a> <a href="/other">other</a></p>' for row in range(3))
    + "<textarea></textarea>"
)


@pytest.fixture
def opened(page: Page, server: ClientServer) -> Page:
    server.show(MAIN)
    for path in ("/row/1", "/sessions", "/sql"):
        server.show(f"<h1>{path}</h1>", path)
    page.goto(server.url)
    expect(page.locator("#live-state")).to_have_text("live")
    return page


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent"))


def test_j_and_k_move_over_rows_and_stop_at_the_ends(opened: Page) -> None:
    seen = []
    for key in "jjjjkkk":
        opened.keyboard.press(key)
        seen.append(focused(opened))
    assert seen == [f"row {row}" for row in (0, 1, 2, 2, 1, 0, 0)]


def test_enter_opens_the_row(opened: Page) -> None:
    for key in ("j", "j", "Enter"):
        opened.keyboard.press(key)
    expect(opened.locator("h1")).to_have_text("/row/1")


@pytest.mark.parametrize(("keys", "path"), [("gs", "/sessions"), ("gq", "/sql")])
def test_g_and_a_letter_go_to_a_page_and_g_r_comes_back(
    opened: Page, server: ClientServer, keys: str, path: str
) -> None:
    opened.keyboard.type(keys)
    expect(opened).to_have_url(server.url + path)
    expect(opened.locator("#live-state")).to_have_text("live")
    opened.keyboard.type("gr")
    expect(opened).to_have_url(server.url + "/")


def test_a_letter_alone_goes_nowhere(opened: Page, server: ClientServer) -> None:
    opened.keyboard.type("sqgxs")
    opened.keyboard.press("j")
    assert focused(opened) == "row 0" and opened.url == server.url + "/"


def test_a_slash_searches_and_escape_leaves_the_field(opened: Page) -> None:
    opened.keyboard.press("/")
    opened.keyboard.type("j/?")  # is typed, in place of the selected text
    expect(opened.locator("[data-search]")).to_have_value("j/?")
    opened.keyboard.press("Escape")
    opened.keyboard.press("j")
    assert focused(opened) == "row 0"


def test_a_question_mark_opens_the_help_and_escape_closes_it(opened: Page) -> None:
    opened.keyboard.press("?")
    expect(opened.locator("#keys")).to_be_visible()
    opened.keyboard.press("j")
    assert focused(opened) != "row 0"
    opened.keyboard.press("Escape")
    expect(opened.locator("#keys")).to_be_hidden()


def test_keys_with_a_modifier_are_the_browsers(opened: Page) -> None:
    opened.keyboard.press("Control+j")
    assert opened.evaluate("document.activeElement === document.body")
