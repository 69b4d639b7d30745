"""Wide tables and long values: all of a table is reached by scrolling its own box, and no value is hidden."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect
from support_page import needs_chromium, open_page
from support_stores import Recording
from support_ui import record_run, serving, session_calls

from weir.store.config import StoreConfig

pytestmark = needs_chromium

SESSION = "session-of-a-very-long-name-" + "x" * 80
TASK = "suite/level-2/" + "fused_matmul_softmax_" * 6
TEXT = "SELECT *, repeat('word ', 100) AS said, 'end' AS last FROM session_rows"
ADDRESSES = ["/sessions", "/compare", "/sql?q=" + quote(TEXT), f"/compare/sessions?a={SESSION}&b=session_0_0"]
HIDDEN = """() => [...document.querySelectorAll("td, th")]
    .filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)"""
SIDEWAYS = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"
UNBOXED = "() => [...document.querySelectorAll('table')].filter((table) => !table.closest('.wide')).length"
SEEN = """(box) => { const last = box.querySelector("thead th:last-child").getBoundingClientRect();
    return last.right <= box.getBoundingClientRect().right + 1; }"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = StoreConfig(root=tmp_path_factory.mktemp("run") / "store")
    record_run(config)
    recording = Recording(config, "long")
    recording.catalog.register_session(
        SESSION, "long", task={"task_id": TASK}, group_size=1, metadata={}, key_hash=None
    )
    recording.record(*session_calls(SESSION, "long", 1, 1_780_000_000_000_000, is_right=True))
    recording.close()
    with serving(config) as found:
        yield found


@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_a_table_scrolls_in_its_own_box_and_hides_nothing(
    chromium: Browser, address: str, width: int, path: str
) -> None:
    with open_page(chromium, viewport={"width": width, "height": 800}) as page:
        page.goto(address + path)
        expect(page.locator(".wide table").first).to_be_visible()
        assert not page.evaluate(SIDEWAYS), "the page itself scrolls sideways"
        assert page.evaluate(UNBOXED) == 0
        assert page.evaluate(HIDDEN) == []
        box = page.locator(".wide").last
        box.evaluate("(box) => box.scrollTo({ left: box.scrollWidth, behavior: 'instant' })")
        assert box.evaluate(SEEN)


def test_a_long_value_of_an_answer_is_opened_in_its_cell(chromium: Browser, address: str) -> None:
    with open_page(chromium) as page:
        page.goto(f"{address}/sql?q={quote(TEXT)}")
        cell = page.locator("td.long").filter(has_text="word word").first
        expect(cell).to_be_visible()
        cell.locator("summary").click()
        assert (cell.locator("details").inner_text() or "").count("word") > 100
