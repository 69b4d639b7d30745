"""Actions in Chromium, with scripts and without them: log in, see what would happen, do it, read it in the audit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from support_page import needs_chromium, open_page
from support_ui import record_run, serving

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.pins import pins
from weir.store.catalog.rewards import rewards_of
from weir.store.config import StoreConfig

pytestmark = needs_chromium

KEY = "weir-control-0123"


@pytest.fixture
def store(tmp_path: Path) -> StoreConfig:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config)
    (config.root / "control.key").write_text(KEY)
    return config


@pytest.fixture
def address(store: StoreConfig) -> Iterator[str]:
    with serving(store) as found:
        yield found


@pytest.fixture
def catalog(store: StoreConfig) -> Iterator[Catalog]:
    catalog = Catalog.open(store)
    yield catalog
    catalog.close()


def human(catalog: Catalog) -> list[tuple[float, str | None]]:
    return [(row.value, row.call_id) for row in rewards_of(catalog, ["session_2_1"], ["human"])]


def log_in(page: Page, key: str = KEY) -> None:
    page.get_by_label("Control key").fill(key)
    page.get_by_label("Your name").fill("Ann")
    page.get_by_role("button", name="Log in").click()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_reward_is_given_after_the_login_and_the_confirmation(
    chromium: Browser, address: str, catalog: Catalog, scripts: bool
) -> None:
    with open_page(chromium, java_script_enabled=scripts) as page:
        page.goto(f"{address}/sessions/session_2_1")
        page.get_by_text("reward, label or pin").click()
        page.locator("select[name=call]").select_option(label="call 2")
        page.get_by_label("name").fill("human")
        page.get_by_label("value").fill("0.25")
        page.get_by_label("note").fill("<b>nearly</b>")
        page.get_by_role("button", name="See what it does").click()
        log_in(page)
        expect(page.get_by_role("heading", name="Reward human = 0.25")).to_be_visible()
        expect(page.locator(".effects")).to_contain_text("call call_session_2_1_2 of session session_2_1 gets")
        assert human(catalog) == []
        page.get_by_role("button", name="Store this reward").click()
        expect(page.locator("main")).to_contain_text("human = 0.25 is stored")
        assert human(catalog) == [(0.25, "call_session_2_1_2")]
        page.reload()
        page.go_back()
        expect(page.locator(".effects")).to_contain_text("It has human = 0.25 now")
        assert len(human(catalog)) == 1, "the way back does nothing"
        page.goto(f"{address}/actions")
        expect(page.get_by_role("region", name="What was done").get_by_role("row")).to_have_count(2)
        expect(page.locator("main")).to_contain_text("<b>nearly</b>")


def test_a_wrong_key_a_logout_and_a_second_tab(page: Page, address: str, catalog: Catalog) -> None:
    pin = f"{address}/do/pin?group=group_1"
    page.goto(pin)
    log_in(page, "wrong")
    expect(page.locator("main")).to_contain_text("this is not the control key")
    page.goto(pin)
    log_in(page)
    other = page.context.new_page()
    other.goto(pin)
    expect(other.get_by_role("button", name="Pin it")).to_be_visible()
    page.goto(f"{address}/actions")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("link", name="Log in")).to_be_visible()
    other.get_by_role("button", name="Pin it").click()
    expect(other.locator("main")).to_contain_text("only who gave the control key may do this")
    assert pins(catalog) == []


def test_a_group_is_pinned_and_unpinned(page: Page, address: str, catalog: Catalog) -> None:
    page.goto(f"{address}/sessions/session_1_0")
    page.get_by_text("reward, label or pin").click()
    page.get_by_role("link", name="Pin the group").click()
    log_in(page)
    page.get_by_role("button", name="Pin it").click()
    expect(page.locator("main")).to_contain_text("group group_1 is pinned")
    assert [pin.name for pin in pins(catalog)] == ["page: group_1"]
    page.goto(f"{address}/actions")
    page.get_by_role("link", name="Unpin").click()
    page.get_by_role("button", name="Unpin it").click()
    expect(page.locator("main")).to_contain_text("is unpinned")
    assert pins(catalog) == []


def test_filtered_sessions_are_exported_and_the_file_is_offered(page: Page, address: str) -> None:
    page.goto(f"{address}/sessions?where=reward+%3E+0.5")
    page.get_by_role("link", name="export").click()
    expect(page.get_by_label("WHERE")).to_have_value("reward > 0.5")
    page.locator("select[name=format]").select_option("jsonl")
    page.get_by_role("button", name="See what it does").click()
    log_in(page)
    expect(page.locator(".effects")).to_contain_text("6 trajectories of 3 groups")
    page.get_by_role("button", name="Write the file").click()
    file = page.get_by_role("link", name=".jsonl")
    expect(file).to_be_visible(timeout=120_000)
    with page.expect_download() as started:
        file.click()
    assert len(Path(started.value.path()).read_text().splitlines()) == 7


def test_a_rollback_and_a_round_that_cannot_be_say_why(page: Page, address: str) -> None:
    page.goto(f"{address}/actions")
    page.get_by_role("link", name="Roll back to 1").click()
    log_in(page)
    expect(page.locator(".effects")).to_contain_text("The weights of version 1 become version 3")
    page.get_by_role("button", name="Roll back").click()
    expect(page.locator("main")).to_contain_text("version 1 has no folder")
    expect(page.locator("main")).to_contain_text("(exit status 2)")  # it has ended, so that another may start
    page.set_default_navigation_timeout(120_000)
    page.goto(f"{address}/actions")
    page.get_by_role("link", name="Start a round").click()
    expect(page.locator("main")).to_contain_text("set [model] path")


def test_a_form_of_another_site_does_nothing(chromium: Browser, page: Page, address: str, catalog: Catalog) -> None:
    page.goto(f"{address}/login")
    log_in(page)
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    forged = f"""<form method="post" action="{address}/do/pin"><input name="group" value="group_1">
        <input name="action" value="action_forged"><button>Go</button></form>"""
    page.route("http://evil.example/", lambda route: route.fulfill(body=forged, content_type="text/html"))
    page.goto("http://evil.example/")
    page.get_by_role("button", name="Go").click()
    expect(page.locator("main")).to_contain_text("does not come from a page of this server")
    assert pins(catalog) == []
