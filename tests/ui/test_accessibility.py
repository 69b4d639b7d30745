"""axe finds nothing serious on any page, light and dark, on a phone and on a large screen."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from support_page import needs_chromium, open_page
from support_ui import record_run, serving

from weir.store.config import StoreConfig

pytestmark = needs_chromium

KEY = "weir-control-0123"
PAGES = (
    "/",
    "/sessions",
    "/sessions/session_1_2",
    "/calls/call_session_1_2_2",
    "/compare",
    "/compare/sessions?a=session_1_0&b=session_1_2",
    "/compare/task?task=add-0",
    "/sql",
    "/sql?q=" + quote("SELECT version_max, count(*) AS n FROM sessions GROUP BY 1"),
    "/actions",
    "/login",
    "/nowhere",
)
DO = "/do/reward?session=session_2_1&name=human&value=1&note=fine"
SIZES = {"phone": {"width": 360, "height": 740}, "large": {"width": 3840, "height": 2160}}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = StoreConfig(root=tmp_path_factory.mktemp("run") / "store")
    record_run(config)
    (config.root / "control.key").write_text(KEY)
    with serving(config) as found:
        yield found


def serious(page: Page) -> list[str]:
    """What axe finds that is serious or critical: its rule, and the first element."""
    found = Axe().run(page).response["violations"]
    bad = [one for one in found if one["impact"] in ("serious", "critical")]
    return [f"{page.url} {one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}" for one in bad]


def is_settled(page: Page) -> None:
    expect(page.locator("main h1")).to_be_visible()
    page.wait_for_load_state("load")
    if page.locator("#curves").count():
        expect(page.locator("#curves canvas").first).to_be_visible()
    if page.locator("#tokens").count():
        expect(page.locator("#tokens .strip")).to_be_visible()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_finding_or_a_sideways_scroll(
    chromium: Browser, address: str, scheme: str, size: str
) -> None:
    with open_page(chromium, color_scheme=scheme, viewport=SIZES[size]) as page:
        found: list[str] = []
        page.goto(f"{address}/login")
        page.get_by_label("Control key").fill(KEY)
        page.get_by_role("button", name="Log in").click()
        for path in (*PAGES, DO):
            page.goto(address + path)
            is_settled(page)
            for summary in page.locator("main summary").all():
                if summary.is_visible():
                    summary.click()
            found += serious(page)
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > SIZES[size]["width"]:
                found.append(f"{path} is {width} pixels wide")
        assert not found, "\n".join(found)


def test_a_fault_would_be_found(page: Page, address: str) -> None:
    page.goto(f"{address}/sessions")
    page.evaluate("document.querySelector('#where').removeAttribute('id')")
    page.evaluate("document.querySelector('[name=where]').removeAttribute('placeholder')")
    assert any(" label: " in one for one in serious(page))
