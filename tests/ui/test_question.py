"""The editor of questions completes names, and an answer has a picture whose kind and columns the address keeps."""

from __future__ import annotations

import random
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from support_page import ClientServer, needs_chromium

pytestmark = needs_chromium

SCHEMA = {
    "views": {"calls": ["call_id", "session_id", "finish"], "sessions": ["session_id", "reward", "num_calls"]},
    "macros": ["sequences(policy)"],
}
FORM = (
    '<form id="question" method="get" action="/sql"><label for="query">SQL</label>'
    '<textarea name="q" id="query" rows="6" data-source="/schema.json"></textarea><button>Run</button></form>'
)


@pytest.fixture
def field(page: Page, server: ClientServer) -> Locator:
    """The editor, empty and focused."""
    server.answers["/schema.json"] = SCHEMA
    for path in ("/", "/sql"):
        server.show(FORM, path)
    page.goto(server.url)
    page.locator("#names").wait_for(state="attached")
    page.locator("#query").focus()
    return page.locator("#query")


def offered(page: Page) -> list[str]:
    return page.locator("#names:visible li span").all_text_contents()


def test_views_and_macros_are_completed_and_tab_takes_the_first(page: Page, field: Locator) -> None:
    page.keyboard.type("SELECT * FROM ses")
    assert offered(page) == ["sessions"]
    page.keyboard.press("Tab")
    expect(field).to_have_value("SELECT * FROM sessions")
    expect(field).to_be_focused()
    assert offered(page) == []
    page.keyboard.type(", seq")
    assert offered(page) == ["sequences(policy)"]


def test_columns_are_those_of_the_views_in_the_question(page: Page, field: Locator) -> None:
    field.fill("SELECT  FROM sessions")
    field.evaluate("field => field.setSelectionRange(7, 7)")
    page.keyboard.type("re")
    assert offered(page) == ["reward"]
    field.fill("SELECT 1 FROM calls c JOIN sessions AS s USING (session_id) WHERE c.")
    field.press("End")
    page.keyboard.type("f")
    assert offered(page) == ["finish"]
    page.keyboard.press("Backspace")
    assert offered(page) == ["call_id", "session_id", "finish"]


def test_arrow_keys_choose_and_enter_takes_what_is_chosen(page: Page, field: Locator) -> None:
    page.keyboard.type("SELECT 1 FROM calls WHERE calls.")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp"):
        page.keyboard.press(key)
    expect(field).to_have_attribute("aria-activedescendant", "name-2")
    assert page.locator("#names [aria-selected=true] span").text_content() == "finish"
    page.keyboard.press("Enter")
    expect(field).to_have_value("SELECT 1 FROM calls WHERE calls.finish")
    page.keyboard.press("Control+z")
    expect(field).to_have_value("SELECT 1 FROM calls WHERE calls.")


def test_enter_with_nothing_chosen_begins_a_line_and_escape_closes(page: Page, field: Locator) -> None:
    page.keyboard.type("ca")
    assert offered(page)
    page.keyboard.press("Enter")
    expect(field).to_have_value("ca\n")
    page.keyboard.type("ca")
    page.keyboard.press("Escape")
    assert offered(page) == []
    expect(field).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Run")).to_be_focused()


def test_control_and_space_offer_all_names_and_a_click_takes_one(page: Page, field: Locator) -> None:
    page.keyboard.press("Control+Space")
    assert offered(page) == ["calls", "sessions", "sequences(policy)"]
    page.get_by_role("option", name="sessions").click()
    expect(field).to_have_value("sessions")
    expect(field).to_be_focused()


def test_the_list_stands_under_the_line_of_the_caret(page: Page, field: Locator) -> None:
    page.keyboard.type("SELECT 1\nFROM ca")
    listed, editor = page.locator("#names").bounding_box(), field.bounding_box()
    assert listed is not None and editor is not None
    line = float(field.evaluate("field => parseFloat(getComputedStyle(field).lineHeight)"))
    assert 2 * line < listed["y"] - editor["y"] < 4 * line


def test_control_and_enter_ask(page: Page, server: ClientServer, field: Locator) -> None:
    page.keyboard.type("SELECT 1")
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(f"{server.url}/sql?q=SELECT+1")


def answer(num_rows: int = 40) -> dict[str, Any]:
    chance = random.Random(0)
    rows = [
        [f"2026-11-{day % 28 + 1:02d} 09:08:30.125", f"task_{day}", day, chance.gauss(0, 1)] for day in range(num_rows)
    ]
    return {
        "columns": ["at", "task", "n", "reward"],
        "types": ["TIMESTAMP", "VARCHAR", "BIGINT", "DOUBLE"],
        "rows": rows,
        "truncated": False,
    }


def show_answer(page: Page, server: ClientServer, given: dict[str, Any], query: str = "") -> None:
    server.answers["/sql.json"] = given
    server.show('<section id="picture" data-source="/sql.json?q=1"></section>')
    page.goto(server.url + query)


def painted(page: Page) -> int:
    """How many points of the picture carry the first series' colour."""
    return int(
        page.evaluate(
            """() => { const canvas = document.querySelector('canvas'); const probe = document.createElement('i');
            probe.className = 'series-0'; document.body.append(probe);
            const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(Number); probe.remove();
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            let count = 0; for (let at = 0; at < data.length; at += 4)
              if (data[at] === r && data[at + 1] === g && data[at + 2] === b) count += 1; return count; }"""
        )
    )


@pytest.mark.parametrize(
    ("kind", "x", "said"),
    [
        ("line", "at", "reward by at; 40 rows"),
        ("bars", "task", "reward by task; 40 rows"),
        ("dots", "n", "reward by n; 40 rows"),
        ("histogram", "n", "histogram of reward; 40 rows"),
    ],
)
def test_a_picture_of_each_kind_is_drawn_and_kept_in_the_address(
    page: Page, server: ClientServer, kind: str, x: str, said: str
) -> None:
    show_answer(page, server, answer())
    page.locator("select[name=kind]").select_option(label=kind)
    page.locator("select[name=x]").select_option(x)
    page.locator("input[value=reward]").check()
    page.locator("input[value=n]").uncheck()
    expect(page.locator("#picture > p")).to_have_text(said)
    page.reload()
    expect(page.locator("#picture > p")).to_have_text(said)
    page.locator("canvas").wait_for()
    assert painted(page) > 100


def test_an_answer_that_was_cut_off_says_so(page: Page, server: ClientServer) -> None:
    show_answer(page, server, answer() | {"truncated": True}, "?kind=line&x=n&y=reward")
    expect(page.locator("#picture > p")).to_have_text("reward by n; 40 rows; the answer is cut off at its limit")


def test_more_bars_than_fit_are_not_drawn_and_that_is_said(page: Page, server: ClientServer) -> None:
    show_answer(page, server, answer(500), "?kind=bar&x=task&y=reward")
    expect(page.locator("#picture > p")).to_have_text("reward by task; 500 rows; the first 200 are drawn")


@pytest.mark.parametrize(
    "given", [answer(0), {"columns": ["task"], "types": ["VARCHAR"], "rows": [["a"]], "truncated": False}]
)
def test_an_answer_without_numbers_has_no_picture(page: Page, server: ClientServer, given: dict[str, Any]) -> None:
    show_answer(page, server, given)
    expect(page.locator("#picture")).to_have_text("No picture: the answer has no column of numbers.")


def test_names_of_columns_are_text(page: Page, server: ClientServer) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    given = {
        "columns": [hostile, "n"],
        "types": ["VARCHAR", "DOUBLE"],
        "rows": [[hostile, 1.5], [None, None]],
        "truncated": False,
    }
    show_answer(page, server, given)
    expect(page.locator("#picture > p")).to_have_text(f"n by {hostile}; 2 rows")
    assert page.locator("#picture img").count() == 0
