"""A call of many tokens in headless Chromium: how long drawing takes, and how many frames a second it scrolls at."""

from __future__ import annotations

import os
import shutil

DRAWN = "weir:tokens drawn"  # the measure that static/tokens.js leaves, from data to elements
TIMES = 5
WAIT_MS = 120_000
SCROLL = """async () => {
    const height = document.documentElement.scrollHeight;
    const began = performance.now();
    let frames = 0;
    while (performance.now() - began < 3000) {
        await new Promise(requestAnimationFrame);
        scrollTo({ top: (frames * 400) % height, behavior: "instant" });
        frames += 1;
    }
    return 1000 * frames / (performance.now() - began);
}"""


def measure_browser(page_url: str, call_id: str) -> dict[str, float | None]:
    """Milliseconds until a call is drawn, the greatest of some, and frames a second; None without Chromium."""
    nothing: dict[str, float | None] = {"tokens_32k_drawn_ms": None, "tokens_32k_scroll_fps": None}
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("not measured in a browser: Playwright is not installed (scripts/install test)", flush=True)
        return nothing
    if chromium is None:
        print("not measured in a browser: there is no Chromium (apt-get install chromium)", flush=True)
        return nothing
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = browser.new_page()
        drawn = []
        for _ in range(TIMES):
            page.goto(f"{page_url}/calls/{call_id}")
            page.locator(".strip .chunk > span").first.wait_for(timeout=WAIT_MS)
            drawn.append(float(page.evaluate("name => performance.getEntriesByName(name)[0].duration", DRAWN)))
        fps = float(page.evaluate(SCROLL))
        browser.close()
    return {"tokens_32k_drawn_ms": max(drawn), "tokens_32k_scroll_fps": fps}
