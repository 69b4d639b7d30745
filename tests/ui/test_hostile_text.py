"""What models and agents write stays text in a browser: 20 attacks, in every field that a page shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect
from support_http import QuietHandler, listening
from support_page import needs_chromium
from support_stores import Recording, make_call
from support_ui import serving

from weir.store.catalog.rows import EvaluationRow, RewardRow
from weir.store.config import StoreConfig

pytestmark = needs_chromium

ATTACKS = [
    "<script>window.hit=1</script>",
    "<script src=/static/app.js></script><script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg onload=window.hit=1>',
    "'><svg/onload=window.hit=1>",
    "</pre></div><iframe srcdoc='<script>top.hit=1</script>'>",
    "</textarea><script>window.hit=1</script>",
    "</title><script>window.hit=1</script>",
    "</script><script>window.hit=1</script>",
    "javascript:window.hit=1",
    "JaVaScRiPt:window.hit=1//",
    "<a href=javascript:window.hit=1>open</a>",
    "[open](javascript:window.hit=1)",
    "<form action=javascript:window.hit=1><button autofocus>go</button></form>",
    "<details open ontoggle=window.hit=1>",
    "<input autofocus onfocus=window.hit=1>",
    "<math><mtext></p><style><img src=x onerror=window.hit=1></style>",
    "<base href=//evil.example/><meta http-equiv=refresh content='0;url=//evil.example'>",
    "{{ constructor.constructor('window.hit=1')() }}${window.hit=1}",
    "\u202e<b id=main data-live>\u2028window.hit=1\x7f<style>*{display:none}</style>",
]
FOUND = """() => ({
    hit: window.hit ?? null,
    wild: [...document.querySelectorAll(
        "iframe, object, embed, base, style, math, meta[http-equiv], script:not([src])"
    )].map((one) => one.outerHTML),
    handlers: [...document.querySelectorAll("*")].filter((one) =>
        [...one.attributes].some((attribute) => attribute.name.startsWith("on"))).map((one) => one.outerHTML),
    links: [...document.querySelectorAll("[href], [src], [action]")].filter((one) =>
        !(one.href ?? one.src ?? one.action).toString().startsWith(location.origin)
        && !(one.action ?? "").toString().startsWith(location.origin)
        && !(one.src ?? "").toString().startsWith(location.origin)).map((one) => one.outerHTML),
})"""


def record(config: StoreConfig, text: str) -> None:
    """A session whose every text is the attack."""
    recording = Recording(config, f"of {ATTACKS.index(text)}")
    tools = [{"type": "function", "function": {"name": text, "description": text}}]
    body = {"messages": [{"role": text, "content": text}, {"role": "user", "content": text}], "tools": tools}
    said = {
        "role": "assistant",
        "content": f"{text}\n```{text}\n{text}\n```\n```html\n{text}\n```",
        "reasoning_content": text,
        "tool_calls": [{"function": {"name": text, "arguments": text}}],
    }
    call = make_call(
        f"call {text}",
        [1, 2],
        [3, 4],
        session_id=text,
        group_id=text,
        user_agent=text,
        error=text,
        model=text,
        request=json.dumps(body).encode(),
        answer=json.dumps(said).encode(),
    )
    catalog = recording.catalog
    catalog.register_session(text, text, task={"task_id": text}, group_size=1, metadata={text: text}, key_hash=None)
    recording.record(call)
    catalog.add_rewards(
        [RewardRow(session_id=text, call_id=None, name=text, value=1.0, source=text, idempotency_key="k")]
    )
    catalog.add_evaluations(
        [
            EvaluationRow(
                call_id=call.call_id,
                session_id=text,
                group_id=text,
                round_id=None,
                content_hash=text,
                compiled=True,
                correct=False,
                fault=text,
                raw_reward=0.0,
                result={"message": text, text: [text], "details": {"output_tail": text}},
                created_us=1,
            )
        ]
    )
    catalog.finish_session(text, status="failed", info={text: text})
    recording.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = StoreConfig(root=tmp_path_factory.mktemp("hostile") / "store")
    for text in ATTACKS:
        record(config, text)

    class Engine(QuietHandler):
        def do_GET(self) -> None:
            self.answer(200, json.dumps({"weight_version": "\n".join(ATTACKS), "model_path": ATTACKS}).encode())

    with listening(Engine) as engine, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_TRAINER__ENGINE_URLS", json.dumps([engine]))
        with serving(config) as found:
            yield found


def test_what_a_server_says_of_itself_stays_text(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("#servers")).to_contain_text(ATTACKS[0])
    expect(page.locator("#servers")).to_contain_text(ATTACKS[10])
    require_harmless(page)


def require_harmless(page: Page) -> None:
    found = page.evaluate(FOUND)
    assert found == {"hit": None, "wild": [], "handlers": [], "links": []}, (page.url, found)


@pytest.mark.parametrize("text", ATTACKS)
def test_a_session_and_a_call_show_the_attack_as_text(page: Page, address: str, text: str) -> None:
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.goto(f"{address}/sessions/{quote(text, safe='')}")
    expect(page.locator(".call")).to_have_count(1)
    for summary in page.locator("summary").all():
        if summary.is_visible():
            summary.click()
    assert " ".join(text.split()) in " ".join(page.locator("#calls").inner_text().split())
    require_harmless(page)
    page.goto(f"{address}/calls/{quote(f'call {text}', safe='')}")
    expect(page.locator("#tokens .strip")).to_be_visible()
    require_harmless(page)


@pytest.mark.parametrize(("one", "other"), list(zip(ATTACKS[::2], ATTACKS[1::2], strict=True)))
def test_two_sessions_side_by_side_show_text(page: Page, address: str, one: str, other: str) -> None:
    page.goto(f"{address}/compare/sessions?a={quote(one, safe='')}&b={quote(other, safe='')}")
    expect(page.locator(".pair")).to_have_count(1)
    require_harmless(page)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/sessions",
        "/compare",
        "/sql?q=" + quote("SELECT session_id, text, tool_calls, content FROM messages"),
        "/sql?q="
        + quote('SELECT task_id AS "<img src=x onerror=window.hit=1>", count(*) FROM session_rows GROUP BY 1'),
        "/actions",
    ],
)
def test_pages_over_all_of_them_show_text(page: Page, address: str, path: str) -> None:
    page.goto(address + path)
    expect(page.locator("main h1")).to_be_visible()
    page.wait_for_load_state("networkidle")
    require_harmless(page)


@pytest.mark.parametrize("text", ATTACKS)
def test_an_attack_in_the_address_stays_text(page: Page, address: str, text: str) -> None:
    given = quote(text, safe="")
    views = (
        f"/sessions?where={given}",
        f"/sql?q={given}",
        f"/nowhere/{given}",
        f"/login?next={given}",
        f"/?names={given}",
    )
    for path in (*views, f"/compare/task?task={given}", f"/sessions/{given}?find={given}"):
        page.goto(address + path)
        expect(page.locator("main h1")).to_be_visible()
        require_harmless(page)


def test_nothing_of_the_list_is_there_twice_and_the_list_is_long() -> None:
    assert len(set(ATTACKS)) == len(ATTACKS) == 20
