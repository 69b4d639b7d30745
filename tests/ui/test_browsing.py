"""The whole page in Chromium, over a recorded run: every page, live, back and forward, two tabs, a dead server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect
from support_page import needs_chromium, open_page
from support_stores import Recording
from support_ui import record_run, serving, session_calls

from weir.store.config import StoreConfig

pytestmark = needs_chromium

LIVE = "#live-state"
OF_EACH_KIND = 12  # so many addresses of each page are followed


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page server over a run that nobody changes."""
    config = StoreConfig(root=tmp_path_factory.mktemp("run") / "store")
    record_run(config)
    with serving(config) as found:
        yield found


def record(config: StoreConfig, name: str) -> None:
    """Two more calls, as the proxy records them while the page is shown."""
    recording = Recording(config, name)
    recording.record(*session_calls(f"session_{name}", f"group_{name}", 5, 1, is_right=True))
    recording.close()


def test_three_clicks_lead_from_the_run_to_why_a_session_failed(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.get_by_role("heading", name="Run", exact=True)).to_be_visible()
    page.get_by_role("link", name="wrong_answer").click()
    expect(page.locator(".count")).to_contain_text("6 sessions")
    page.get_by_role("link", name="session_1_2").click()
    expect(page.locator(".verdict").last).to_contain_text("3 of 4,096 values differ")
    expect(page.locator(".diff .added").last).to_contain_text("*")
    page.get_by_role("link", name="call 2").click()
    expect(page.locator("#tokens .strip")).to_contain_text("30 31 v2")


def test_every_link_of_every_page_leads_somewhere(page: Page, address: str) -> None:
    todo, seen, kinds = ["/"], set(), Counter[str]()
    while todo:
        path = todo.pop(0)
        kind = path.split("?")[0].split("/")[1]
        if path in seen or kind in {"download", "do"} or kinds[kind] == OF_EACH_KIND:
            continue
        seen.add(path)
        kinds[kind] += 1
        answer = page.goto(address + path)
        assert answer is not None and answer.ok, f"{path}: {answer and answer.status}"
        links = page.locator("a[href]").evaluate_all("all => all.map((one) => one.href)")
        assert all(link.startswith(address) for link in links), links
        todo += sorted({link.removeprefix(address).split("#")[0] for link in links})
    assert {urlsplit(path).path for path in seen} >= {
        "/",
        "/sessions",
        "/compare",
        "/compare/task",
        "/sql",
        "/actions",
        "/login",
    }


def test_two_sessions_of_a_group_are_compared_from_its_page_and_from_its_table(page: Page, address: str) -> None:
    page.goto(f"{address}/sessions/session_1_2")
    page.get_by_text("4 sessions of the group").click()
    page.get_by_role("listitem").filter(has_text="session_1_0").get_by_role("link", name="compare").click()
    expect(page.get_by_role("heading", name="Two sessions")).to_be_visible()
    expect(page.locator(".pair").nth(1).locator("> .diff .removed").last).to_contain_text("* tl.load")
    expect(page.locator(".pair").nth(1).locator("> .diff .added").last).to_contain_text("+ tl.load")
    page.get_by_role("link", name="Swap").click()
    expect(page.locator(".pair").nth(1).locator("> .diff .added").last).to_contain_text("* tl.load")
    page.locator("select[name=b]").select_option("session_1_3")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("columnheader", name="session_1_3")).to_be_visible()
    page.goto(f"{address}/sessions?where=group_id+%3D+'group_1'")
    page.get_by_role("link", name="first and last side by side").click()
    expect(page.locator(".pair")).to_have_count(2)


def test_the_curves_of_two_stores_are_in_one_picture(page: Page, tmp_path: Path) -> None:
    stores = [StoreConfig(root=tmp_path / name) for name in ("first", "second")]
    for store, num_groups in zip(stores, (3, 4), strict=True):
        record_run(store, num_groups=num_groups)
    with serving(*stores) as address:
        page.goto(address)
        picture = page.locator("figure[data-series=reward_mean]")
        expect(picture.locator("output")).to_have_text("0.5 0.75 ")
        picture.locator("summary").click()
        expect(picture.get_by_role("columnheader")).to_have_text(["round", *(str(store.root) for store in stores)])
        page.get_by_label(str(stores[1].root)).uncheck()
        expect(picture.locator("output")).to_have_text("0.5 ")
        expect(page.locator(".store")).to_have_text(str(stores[0].root))


def test_curves_are_drawn_from_the_rounds(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("#curves canvas").first).to_be_visible()
    expect(page.locator("#curves")).to_contain_text("reward_mean")


def test_a_filter_a_sort_and_a_question_are_in_the_address_back_forward_and_reload(page: Page, address: str) -> None:
    page.goto(f"{address}/sessions")
    page.get_by_label("WHERE").fill("reward < 0.5")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".count")).to_contain_text("6 sessions")
    page.get_by_role("columnheader", name="reward").get_by_role("link").click()
    page.wait_for_url(re.compile("sort=reward"))
    page.go_back()
    expect(page.get_by_label("WHERE")).to_have_value("reward < 0.5")
    page.go_back()
    expect(page.locator(".count")).to_contain_text("12 sessions")
    page.go_forward()
    expect(page.locator(".count")).to_contain_text("6 sessions")
    page.reload()
    expect(page.locator(".count")).to_contain_text("6 sessions")
    page.goto(f"{address}/sql?q={quote('SELECT count(*) AS n FROM calls')}")
    expect(page.locator("td").first).to_have_text("24")


def test_a_wrong_filter_says_why_and_a_page_that_is_not_there_too(page: Page, address: str) -> None:
    page.goto(f"{address}/sessions?where=rewar")
    expect(page.get_by_role("alert")).to_contain_text("rewar")
    page.goto(f"{address}/nowhere")
    expect(page.locator("main")).to_contain_text("there is no page at this address")


def test_two_versions_are_compared(page: Page, address: str) -> None:
    page.goto(f"{address}/compare")
    expect(page.locator("main")).to_contain_text("1 task gained, 0 lost")
    page.get_by_label("version").first.select_option("2")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url(re.compile("a=2"))


def test_a_file_of_a_whole_answer_is_downloaded(page: Page, address: str) -> None:
    page.goto(f"{address}/sql?q={quote('SELECT session_id FROM sessions ORDER BY 1')}")
    with page.expect_download() as started:
        page.locator(".downloads").get_by_role("link", name="csv").click()
    text = Path(started.value.path()).read_text()
    assert text.splitlines()[:2] == ["session_id", "session_0_0"] and len(text.splitlines()) == 13


def test_a_question_of_the_cookbook_is_asked_and_a_task_is_followed_over_versions(page: Page, address: str) -> None:
    page.goto(f"{address}/sql")
    page.get_by_role("link", name="Which faults did incorrect answers have?").click()
    expect(page.get_by_role("region", name="Answer")).to_contain_text("wrong_answer")
    page.goto(f"{address}/compare")
    page.get_by_role("link", name="add-0").click()
    expect(page.get_by_role("heading", name="add-0")).to_be_visible()
    expect(page.locator("#picture canvas")).to_be_visible()
    expect(page.get_by_role("region", name="Versions").get_by_role("row")).to_have_count(3)
    page.get_by_role("checkbox", name="output_tokens").check()
    assert "task=add-0" in page.url and "y=output_tokens" in page.url
    page.get_by_role("link", name="best of both").click()
    expect(page.locator(".pair")).to_have_count(2)


def test_calls_of_a_session_are_found_by_a_text_that_the_address_keeps(page: Page, address: str) -> None:
    page.goto(f"{address}/sessions/session_1_2")
    expect(page.locator(LIVE)).to_have_text("live")
    page.keyboard.press("/")
    page.keyboard.type("WRONG at 3 of")
    expect(page.locator("#calls > article:visible")).to_have_count(1)
    expect(page.locator("#found")).to_have_text("1 of 2 calls")
    page.reload()
    expect(page.locator("#calls > article:visible")).to_have_count(1)
    page.get_by_label("find in calls").fill("")
    expect(page.locator("#calls > article:visible")).to_have_count(2)


def test_the_keyboard_alone_opens_a_session(page: Page, address: str) -> None:
    page.goto(f"{address}/sessions?sort=session_id&order=asc")
    expect(page.locator(LIVE)).to_have_text("live")
    for key in ("j", "j", "k"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/sessions/session_0_0")
    expect(page.locator(LIVE)).to_have_text("live")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()


def test_calls_that_arrive_appear_in_two_tabs(page: Page, chromium: Browser, tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config, num_groups=1, group_size=2)
    with serving(config, refresh_s=0.2) as address, open_page(chromium) as other:
        page.goto(f"{address}/sessions")
        other.goto(address)
        for one in (page, other):
            expect(one.locator(LIVE)).to_have_text("live")
        record(config, "new")
        expect(page.get_by_role("link", name="session_new")).to_be_visible(timeout=120_000)
        expect(other.locator("#totals")).to_contain_text("6")
        assert page.locator("#refused").count() == 1, "the page was not loaded again"


def test_a_server_that_is_gone_is_named_and_its_return_shows_what_is_new(page: Page, tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config, num_groups=1, group_size=2)
    with serving(config, refresh_s=0.2) as address:
        page.goto(f"{address}/sessions")
        expect(page.locator(LIVE)).to_have_text("live")
        port = urlsplit(address).port
        assert port is not None
    expect(page.locator(LIVE)).to_contain_text("no connection since")
    expect(page.get_by_role("link", name="session_0_0")).to_be_visible()
    record(config, "meanwhile")
    with serving(config, port=port, refresh_s=0.2):
        expect(page.locator(LIVE)).to_have_text("live")
        expect(page.get_by_role("link", name="session_meanwhile")).to_be_visible(timeout=120_000)
