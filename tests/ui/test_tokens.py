"""The strip of tokens: every piece in order and colour, all that is known of each, few elements for many tokens."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support_page import ClientServer, needs_chromium

pytestmark = needs_chromium

PIECES = ["Hello", "\n", "", "def", " f", "<script>alert(1)</script>", "\u202e", " x", "\n"]
BUILT_IN_SIGHT = """() => [...document.querySelectorAll(".chunk")].every((box) => {
    const { top, bottom } = box.getBoundingClientRect();
    return bottom <= 0 || top >= innerHeight || box.firstChild !== null;
})"""


def call(num_tokens: int = len(PIECES), **changes: Any) -> dict[str, Any]:
    """A call with three tokens of prompt; weights change at token 6."""
    pieces = [PIECES[token % len(PIECES)] for token in range(num_tokens)]
    values = {
        "pieces": pieces,
        "ids": list(range(100, 100 + num_tokens)),
        "logprobs": [None if token < 3 else -0.5 * (token - 3) for token in range(num_tokens)],
        "versions": [None if token < 3 else 7 if token < 6 else 8 for token in range(num_tokens)],
        "trained": [None if token < 3 else int(token != 4) for token in range(num_tokens)],
        "masks": [
            "prompt" if token < 3 else "trained" if token != 4 else "<i>dropped</i>" for token in range(num_tokens)
        ],
        "advantages": [None if token < 3 else (token - 5) / 2 for token in range(num_tokens)],
        "ratios": [None if token < 3 else 2.0 if token == 4 else 1.0 for token in range(num_tokens)],
        "output_start": 3,
        "note": "",
    }
    return values | changes


def show(page: Page, server: ClientServer, tokens: dict[str, Any], query: str = "") -> None:
    server.answers["/tokens.json"] = tokens
    server.show(
        '<section id="tokens" data-source="/tokens.json"></section><aside id="token" aria-live="polite"></aside>'
    )
    page.goto(server.url + query)
    page.locator(".strip .chunk > span").first.wait_for()


def fact(page: Page, name: str) -> str:
    """What the panel says under a name."""
    return page.locator(f"#token div:has(dt:text-is('{name}')) dd").inner_text()


def test_all_pieces_are_there_in_order_and_none_is_markup(page: Page, server: ClientServer) -> None:
    show(page, server, call())
    shown = page.locator(".strip .chunk > span").all_text_contents()
    assert shown == ["Hello", "⏎\n", "⟨102⟩", "def", " f", "<script>alert(1)</script>", "\\u{202e}", " x", "⏎\n"]
    assert page.locator(".strip script").count() == 0


def test_a_text_from_right_to_left_turns_only_its_own_token(page: Page, server: ClientServer) -> None:
    show(page, server, call(pieces=["a", "b", "\u05d0\u05d1", "1", "\u05d2", "c", "d", "e", "f"]))
    left = page.locator(".strip .chunk > span").evaluate_all(
        "spans => spans.map((one) => one.getBoundingClientRect().x)"
    )
    assert left == sorted(left)


def test_a_line_end_begins_a_line(page: Page, server: ClientServer) -> None:
    show(page, server, call())
    tops = [page.locator(".strip .chunk > span").nth(token).bounding_box()["y"] for token in (0, 3)]  # type: ignore[index]
    assert tops[1] > tops[0]


def test_the_prompt_is_dimmed_and_the_answer_coloured_by_the_logprob(page: Page, server: ClientServer) -> None:
    show(page, server, call())
    classes = page.locator(".strip .chunk > span").evaluate_all("spans => spans.map((span) => span.className.trim())")
    # logprobs 0, -0.5, -1, -1.5, -2, -2.5 by the lower ends -0.01, -0.1, -0.5, -1, -2, -4, -8
    assert classes == ["prompt", "prompt", "prompt", "p0", "p2", "p3", "p4", "p4", "p5"]


def test_another_colour_is_chosen_kept_in_the_address_and_explained(page: Page, server: ClientServer) -> None:
    show(page, server, call())
    page.get_by_label("colour").select_option("version")
    classes = page.locator(".strip .chunk > span").evaluate_all("spans => spans.map((span) => span.className.trim())")
    assert classes[3:] == ["v0", "v0", "v0", "v1", "v1", "v1"]
    assert page.locator(".legend").inner_text().split() == ["prompt", "v7", "v8"]
    page.reload()
    expect(page.get_by_label("colour")).to_have_value("version")
    page.get_by_label("colour").select_option("trained")
    assert page.locator(".strip .t0").all_text_contents() == [" f"]


def test_a_mark_stands_where_other_weights_took_over(page: Page, server: ClientServer) -> None:
    show(page, server, call())
    assert page.locator(".boundary").all_text_contents() == ["v8"]
    assert page.locator(".boundary + span").text_content() == "\\u{202e}"


def test_the_pointer_shows_all_that_is_known_of_a_token(page: Page, server: ClientServer) -> None:
    show(page, server, call())
    page.locator(".strip .chunk > span").nth(4).hover()
    assert {name: fact(page, name) for name in ("piece", "id", "position", "logprob", "probability", "version")} == {
        "piece": '" f"',
        "id": "104",
        "position": "4 (output 1)",
        "logprob": "-0.5",
        "probability": "60.65 %",
        "version": "v7",
    }
    assert fact(page, "trained") == "no, left out"
    page.locator(".strip .chunk > span").nth(6).hover()
    assert fact(page, "piece") == '"\\u{202e}"'  # what cannot be seen is named
    page.locator(".strip .chunk > span").nth(0).hover()
    assert fact(page, "logprob") == fact(page, "version") == fact(page, "trained") == "not recorded"


def test_arrow_keys_move_from_token_to_token_and_from_line_to_line(page: Page, server: ClientServer) -> None:
    show(page, server, call())
    page.locator(".strip").focus()
    for key, position in (
        *(("ArrowRight", "0 (prompt)"), ("ArrowRight", "1 (prompt)"), ("ArrowRight", "2 (prompt)")),
        *(("ArrowUp", "0 (prompt)"), ("ArrowLeft", "0 (prompt)"), ("ArrowDown", "2 (prompt)")),
        *(("End", "8 (output 5)"), ("ArrowRight", "8 (output 5)"), ("Home", "0 (prompt)")),
    ):
        page.keyboard.press(key)
        assert fact(page, "position") == position, key
    assert page.locator(".strip .marked").all_text_contents() == ["Hello"]


def test_the_token_of_a_link_is_marked_and_in_sight(page: Page, server: ClientServer) -> None:
    show(page, server, call(20_000), "?token=15000")
    expect(page.locator(".strip .marked")).to_be_in_viewport()
    assert fact(page, "id") == "15100"
    page.get_by_label("token", exact=True).fill("19999")
    expect(page.locator(".strip .marked")).to_be_in_viewport()
    assert fact(page, "id") == "20099" and "token=19999" in page.url


def test_of_many_tokens_only_those_near_the_window_have_elements(page: Page, server: ClientServer) -> None:
    show(page, server, call(100_000))
    spans = page.locator(".strip .chunk > span")
    height = page.evaluate("document.documentElement.scrollHeight")
    for part in range(1, 11):
        page.evaluate("(top) => scrollTo({ top, behavior: 'instant' })", height * part / 10)
        page.wait_for_function(BUILT_IN_SIGHT)
        assert spans.count() < 6_000
    expect(spans.last).to_have_text(PIECES[99_999 % len(PIECES)])
    assert page.evaluate("document.documentElement.scrollHeight") == pytest.approx(height, rel=0.05)  # a good estimate


@pytest.mark.parametrize("num_tokens", [0, 1])
def test_a_call_of_no_or_one_token(page: Page, server: ClientServer, num_tokens: int) -> None:
    server.answers["/tokens.json"] = call(
        num_tokens, output_start=0, note="Its engine gave no ids." if num_tokens == 0 else ""
    )
    server.show('<section id="tokens" data-source="/tokens.json"></section>')
    page.goto(server.url)
    expect(page.locator("#tokens")).to_contain_text("Its engine gave no ids." if num_tokens == 0 else "Hello")


def test_a_failure_of_the_server_is_said_on_the_page(page: Page, server: ClientServer) -> None:
    server.answers["/tokens.json"] = 500
    server.show('<section id="tokens" data-source="/tokens.json"></section>')
    page.goto(server.url)
    expect(page.get_by_role("alert")).to_have_text("/tokens.json answered 500: no such thing")


def classes(page: Page) -> list[str]:
    """Of the tokens of the answer."""
    found: list[str] = page.locator(".strip .chunk > span").evaluate_all("all => all.map((one) => one.className)")
    return [one.replace("marked", "").strip() for one in found[3:]]


@pytest.mark.parametrize(
    ("colour", "expected"),
    [
        ("mask", ["t1", "v3", "t1", "t1", "t1", "t1"]),
        ("advantage", ["down2", "down3", "", "up3", "up2", "up1"]),
        ("ratio", ["p0", "p6", "p0", "p0", "p0", "p0"]),
        ("entropy", [""] * 6),
    ],
)
def test_tokens_are_coloured_by_what_the_trainer_said_of_them(
    page: Page, server: ClientServer, colour: str, expected: list[str]
) -> None:
    show(page, server, call(), query=f"?colour={colour}&token=4")
    assert classes(page) == expected
    assert fact(page, "mask") == "<i>dropped</i>" and page.locator("i").count() == 0
    assert fact(page, "advantage") == "-0.5" and fact(page, "ratio") == "2"
    assert fact(page, "entropy") == "not recorded"
