"""The pictures in docs/ui.md: taken of the page over a recorded run, written where WEIR_TEST_PICTURES is set."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect
from support_page import needs_chromium, open_page
from support_ui import record_run, serving

from weir.store.config import StoreConfig

pytestmark = needs_chromium

DOCS = Path(__file__).parents[2] / "docs"
WIDTH = 1100  # pixels
QUESTION = (
    "SELECT version_max AS version, count(*) AS sessions, avg(reward) AS reward FROM sessions GROUP BY ALL ORDER BY 1"
)
PAGES = {  # address, what is waited for, height of the picture in pixels
    "run": ("/", "#curves canvas", 640),
    "servers": ("/#servers", "#servers td", 420),
    "timeline": ("/#timeline", ".timeline", 420),
    "sessions": ("/sessions?where=" + quote("reward < 0.5"), "tr[data-row]", 540),
    "session": ("/sessions/session_1_2", ".verdict", 640),
    "call": ("/calls/call_session_1_2_2", "#tokens .strip", 480),
    "compare": ("/compare", "table", 240),
    "task": ("/compare/task?task=add-0", "#picture canvas", 520),
    "questions": ("/sql", "#cookbook a", 640),
    "sessions-compared": ("/compare/sessions?a=session_1_0&b=session_1_2", ".pair", 900),
    "sql": ("/sql?q=" + quote(QUESTION), "td", 640),
    "actions": ("/do/reward?session=session_1_2&name=human&value=0.5", ".effects", 220),
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page server over a run of four rounds."""
    config = StoreConfig(root=tmp_path_factory.mktemp("run") / "store")
    record_run(config, num_groups=5)
    (config.root / "control.key").write_text("weir-control-0123")
    with serving(config) as found:
        yield found


def size_of(png: bytes) -> tuple[int, ...]:
    """Width and height in pixels, which a PNG's first chunk holds."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize("name", PAGES)
def test_the_documentation_shows_each_page(chromium: Browser, address: str, name: str) -> None:
    path, shown, height = PAGES[name]
    with open_page(
        chromium, viewport={"width": WIDTH, "height": height}, color_scheme="light", reduced_motion="reduce"
    ) as page:
        page.goto(f"{address}/login")
        page.get_by_label("Control key").fill("weir-control-0123")
        page.get_by_role("button", name="Log in").click()
        page.goto(address + path)
        expect(page.locator(shown).first).to_be_visible()
        if name != "actions":
            expect(page.locator("#live-state")).to_have_text("live")
        page.evaluate("document.querySelector('.store').textContent = 'weir-data'")
        page.evaluate("document.fonts.ready")
        taken = page.screenshot()
    file = DOCS / "pictures" / f"page-{name}.png"
    if os.environ.get("WEIR_TEST_PICTURES"):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(taken)
    assert size_of(taken) == size_of(file.read_bytes()) == (WIDTH, height)
    assert f"](pictures/{file.name})" in (DOCS / "ui.md").read_text()


def test_no_picture_is_left_from_a_page_that_is_gone() -> None:
    assert {file.stem for file in (DOCS / "pictures").glob("page-*.png")} == {f"page-{name}" for name in PAGES}
