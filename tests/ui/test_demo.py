"""The page over a store that the demo made: a short one, whose model has learned next to nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from support_page import needs_chromium
from support_ui import serving

from weir.scripts.demo_loop import run
from weir.scripts.demo_loop.progress import Progress, expected_s
from weir.scripts.launch.settings import load_settings
from weir.store.config import StoreConfig
from weir.store.reader import connect

pytestmark = needs_chromium
EXAMPLES = 40  # of the cold start


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreConfig]:
    """The store of a demo with one round and a small part of the cold start."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    write_corpus = run.write_corpus

    def write_short_corpus(path: Path, seed: int) -> None:
        write_corpus(path, seed)
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:EXAMPLES]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "write_corpus", write_short_corpus)
        patch.setattr(run, "SFT_EPOCHS", 1)
        patch.setattr(run, "HELDOUT_SAMPLES", 1)
        with (
            Progress(expected_s(1), lambda _: None) as progress,
            ThreadPoolExecutor(1) as away,
        ):  # from the browser's loop
            away.submit(run.run_demo, run.DemoOptions(folder=folder, rounds=1), progress).result()
    yield load_settings(folder / run.CONFIG_FILE).store


def test_three_clicks_lead_to_why_a_session_of_the_demo_failed(page: Page, made: StoreConfig) -> None:
    with connect(made) as db:
        fault, number = db.sql(  # a session failed by the fault of its last answer
            "SELECT fault, count(*) FROM ("
            "SELECT session_id, arg_max_null(fault, (call_id, created_at)) AS fault FROM evaluations GROUP BY 1"
            ") WHERE fault IS NOT NULL GROUP BY fault ORDER BY 2 DESC, 1 LIMIT 1"
        ).fetchall()[0]
        messages = {
            row[0]
            for row in db.sql(f"SELECT result ->> 'fault_message' FROM evaluations WHERE fault = '{fault}'").fetchall()
        }
    with serving(made) as address:
        page.goto(address)
        expect(page.get_by_role("heading", name="Run", exact=True)).to_be_visible()
        page.get_by_role("link", name=fault, exact=True).click()
        expect(page.locator(".count")).to_contain_text(f"{number} session")
        page.locator("tbody th a").first.click()
        shown = page.locator(".verdict").last
        expect(shown).to_contain_text(fault)
        assert any(message.splitlines()[0] in shown.inner_text() for message in messages if message)
        page.get_by_role("link", name=re.compile(r"^call \d")).last.click()
        expect(page.locator("#tokens .strip")).to_contain_text(re.compile(r"\d+ \d+"))


def test_the_main_pages_of_the_demos_store_answer(page: Page, made: StoreConfig) -> None:
    with serving(made) as address:
        for path in ("/", "/sessions", "/compare", "/sql", "/actions"):
            answer = page.goto(address + path)
            assert answer is not None and answer.ok, path
        page.goto(address)
        expect(page.locator(".figure, figure, canvas").first).to_be_visible()
