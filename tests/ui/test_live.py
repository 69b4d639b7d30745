"""The page follows the store: what changed is replaced, what a person is in waits, and a lost server is named."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from support_page import ClientServer, needs_chromium

pytestmark = needs_chromium

MAIN = """<p id="count" data-live>{count}</p>
<section id="list" data-live><details id="more"><summary>more</summary>hidden {count}</details>
<details><summary>facets</summary>values</details>
<div class="wide"><table><tbody>{rows}</tbody></table></div></section>
<p id="same">{count}</p>"""
STATE = "#live-state"
HIDE = """(isHidden) => {
    Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def main(count: int) -> str:
    rows = "".join(f'<tr data-row><td><a href="/{row}">row {row}</a></td></tr>' for row in range(count))
    return MAIN.format(count=count, rows=rows)


def open_live(page: Page, server: ClientServer, count: int = 3) -> None:
    server.show(main(count))
    page.goto(server.url)
    expect(page.locator(STATE)).to_have_text("live")


def change(server: ClientServer, count: int) -> None:
    server.show(main(count))
    server.changed()


def test_what_is_live_is_replaced_and_the_rest_stays(page: Page, server: ClientServer) -> None:
    open_live(page, server)
    change(server, 4)
    expect(page.locator("#count")).to_have_text("4")
    expect(page.locator("[data-row]")).to_have_count(4)
    expect(page.locator("#same")).to_have_text("3")


def test_what_did_not_change_is_the_same_element(page: Page, server: ClientServer) -> None:
    open_live(page, server)
    page.evaluate("document.querySelector('#list').dataset.known = '1'")
    server.show(main(3).replace(">3</p>", ">5</p>"))
    server.changed()
    expect(page.locator("#count")).to_have_text("5")
    assert page.locator("#list").get_attribute("data-known") == "1"


def test_opened_details_and_scrolled_places_stay(page: Page, server: ClientServer) -> None:
    page.set_viewport_size({"width": 400, "height": 300})
    open_live(page, server, 60)
    page.locator("#more summary").click()
    page.evaluate("document.querySelector('.wide').style.width = '20px'")
    page.evaluate("scrollTo({ top: 200, behavior: 'instant' })")
    page.evaluate("document.activeElement.blur()")  # the summary has it
    change(server, 61)
    expect(page.locator("[data-row]")).to_have_count(61)
    assert page.locator("details").evaluate_all("all => all.map((one) => one.open)") == [True, False]
    assert page.evaluate("scrollY") == 200


def test_a_part_with_the_focus_waits_until_the_focus_leaves(page: Page, server: ClientServer) -> None:
    open_live(page, server)
    page.locator("[data-row] a").nth(1).focus()
    change(server, 4)
    expect(page.locator("#count")).to_have_text("4")
    expect(page.locator("#list[data-held]")).to_have_count(1)
    assert page.locator("[data-row]").count() == 3
    page.keyboard.press("Escape")
    expect(page.locator("[data-row]")).to_have_count(4)  # although nothing changed again


def test_a_part_with_selected_text_waits(page: Page, server: ClientServer) -> None:
    open_live(page, server)
    page.evaluate("getSelection().selectAllChildren(document.querySelector('[data-row]'))")
    change(server, 4)
    expect(page.locator("#count")).to_have_text("4")
    assert page.locator("[data-row]").count() == 3
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.locator("[data-row]")).to_have_count(4)


def test_many_changes_are_fetched_one_after_another_and_the_last_is_shown(page: Page, server: ClientServer) -> None:
    open_live(page, server)
    before = server.requests.count("/")
    for count in range(4, 34):
        change(server, count)
    expect(page.locator("#count")).to_have_text("33")
    assert server.requests.count("/") - before <= 30


def test_a_server_that_is_gone_is_named_and_its_return_shows_what_changed(page: Page, server: ClientServer) -> None:
    open_live(page, server)
    server.stop()
    expect(page.locator(STATE)).to_have_text("reconnecting")
    expect(page.locator(STATE)).to_have_text(re.compile(r"^no connection since \d\d:\d\d:\d\d$"), timeout=15_000)
    server.show(main(9))
    server.start()
    expect(page.locator(STATE)).to_have_text("live")
    expect(page.locator("#count")).to_have_text("9")


def test_a_page_that_cannot_be_renewed_says_so_and_stays(page: Page, server: ClientServer) -> None:
    open_live(page, server)
    server.answers["/"] = 503
    server.changed()
    expect(page.locator(STATE)).to_have_text("not renewed: / answered 503: no such thing")
    expect(page.locator("#count")).to_have_text("3")
    change(server, 4)
    expect(page.locator(STATE)).to_have_text("live")
    expect(page.locator("#count")).to_have_text("4")


def test_a_refused_connection_is_tried_again(page: Page, server: ClientServer) -> None:
    server.answers["/live"] = 503
    server.show(main(3))
    page.goto(server.url)
    expect(page.locator(STATE)).to_have_text("reconnecting")
    del server.answers["/live"]
    expect(page.locator(STATE)).to_have_text("live")


def test_a_hidden_page_has_no_connection_and_is_new_when_it_is_seen_again(page: Page, server: ClientServer) -> None:
    open_live(page, server)
    page.evaluate(HIDE, True)
    change(server, 7)
    assert page.locator("#count").inner_text() == "3"
    page.evaluate(HIDE, False)
    expect(page.locator("#count")).to_have_text("7")


def test_the_stream_is_told_what_the_page_shows(page: Page, server: ClientServer) -> None:
    open_live(page, server)
    assert "/live?seen=3-1" in server.requests


def show_calls(server: ClientServer, count: int) -> None:
    calls = "".join(f"<article>call {call}</article>" for call in range(count))
    server.show(
        f'<input id="find"><output id="found"></output><p id="count" data-live>{count}</p>'
        f'<section id="calls" data-live>{calls}</section>'
    )


def test_calls_that_waited_are_looked_through_when_they_are_shown(page: Page, server: ClientServer) -> None:
    show_calls(server, 2)
    page.goto(server.url)
    expect(page.locator(STATE)).to_have_text("live")
    page.locator("#find").fill("call 1")
    expect(page.locator("#found")).to_have_text("1 of 2 calls")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#calls'))")
    show_calls(server, 3)
    server.changed()
    expect(page.locator("#count")).to_have_text("3")
    expect(page.locator("#calls > article")).to_have_count(2)
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.locator("#found")).to_have_text("1 of 3 calls")
    assert page.locator("#calls > article:not([hidden])").all_text_contents() == ["call 1"]
