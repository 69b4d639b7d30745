"""Curves: a picture for each series, and a view that the address keeps."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support_page import ClientServer, needs_chromium

pytestmark = needs_chromium

FIRST_S = 1_790_000_000


def run(name: str, num_rounds: int = 10, **series: Any) -> dict[str, Any]:
    rounds = list(range(1, num_rounds + 1))
    default = {"reward": [number / 10 for number in rounds], "kl": [0.0, None, *(0.01 for _ in rounds[2:])]}
    return {
        "name": name,
        "round": rounds,
        "time": [FIRST_S + 60 * number for number in rounds],
        "series": default | series,
    }


def show(page: Page, server: ClientServer, *runs: dict[str, Any], query: str = "") -> None:
    server.answers["/curves.json"] = {"runs": list(runs)}
    server.show('<section id="curves" data-source="/curves.json?runs=all"></section>')
    page.goto(server.url + query)
    page.locator(".plot canvas").first.wait_for()


def drawn(page: Page) -> list[str]:
    return page.locator("figure:visible h3").all_text_contents()


def drag(page: Page, series: str, start: float, end: float) -> None:
    """Over a part of a picture, as shares of its width."""
    box = page.locator(f"figure[data-series={series}] .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + start * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 40, steps=4)
    page.mouse.up()


def zoom_of(page: Page) -> list[float]:
    return [
        float(end) for end in page.evaluate("new URLSearchParams(location.search).get('zoom') ?? ''").split("..") if end
    ]


def test_every_series_has_a_picture_with_the_latest_values_of_all_runs(page: Page, server: ClientServer) -> None:
    show(page, server, run("first"), run("second", entropy=[2.0] * 10))
    assert drawn(page) == ["reward", "kl", "entropy"]
    assert page.locator("figure[data-series=reward] output").inner_text().split() == ["1", "1"]
    expect(page.locator("figure[data-series=kl] .plot")).to_have_attribute(
        "aria-label", "kl by round, latest: 0.01, 0.01; the table below has all values"
    )


def test_the_table_beside_a_picture_has_its_values_newest_first(page: Page, server: ClientServer) -> None:
    show(page, server, run("first"), run("second", num_rounds=12, kl=[0.5] * 12))
    page.locator("figure[data-series=kl] summary").click()
    page.locator("figure[data-series=kl] table").wait_for()
    rows = [row.split("\t") for row in page.locator("figure[data-series=kl] table tr").all_inner_texts()]
    assert rows[0] == ["round", "first", "second"]
    assert rows[1] == ["12", "", "0.5"] and rows[-2] == ["2", "", "0.5"] and rows[-1] == ["1", "0", "0.5"]


def test_dragging_zooms_all_pictures_and_a_double_click_shows_all(page: Page, server: ClientServer) -> None:
    show(page, server, run("first"), query="?runs=all")
    drag(page, "reward", 1 / 3, 2 / 3)
    low, high = zoom_of(page)
    assert low == pytest.approx(4, abs=0.1) and high == pytest.approx(7, abs=0.1)  # rounds 1 to 10
    assert "runs=all" in page.url
    page.locator("figure[data-series=kl] .u-over").dblclick()
    expect(page.get_by_role("button", name="show all")).to_be_disabled()
    assert zoom_of(page) == []


def test_keys_zoom_and_move_a_picture_that_has_the_focus(page: Page, server: ClientServer) -> None:
    show(page, server, run("first", num_rounds=9))
    page.locator("figure[data-series=reward] .plot").focus()
    expected = {"+": [3, 7], "ArrowRight": [4, 8], "ArrowLeft": [3, 7], "-": [2, 8], "0": []}
    for key, zoom in expected.items():
        page.keyboard.press(key)
        assert zoom_of(page) == zoom, key


def test_a_link_restores_the_whole_view(page: Page, server: ClientServer) -> None:
    show(page, server, run("first"), run("second"))
    page.get_by_label("x axis").select_option("time")
    page.get_by_label("smoothing").fill("0.6")
    page.get_by_label("log axis").check()
    page.get_by_label("names").fill("rew")
    page.get_by_label("second").uncheck()
    drag(page, "reward", 0.25, 0.75)
    zoom = zoom_of(page)
    assert zoom[0] == pytest.approx(FIRST_S + 60 * 3.25, abs=5)
    page.goto(page.url)
    page.locator(".plot canvas").first.wait_for()
    assert drawn(page) == ["reward"] and zoom_of(page) == zoom
    expect(page.get_by_label("x axis")).to_have_value("time")
    expect(page.get_by_label("smoothing")).to_have_value("0.6")
    expect(page.get_by_label("log axis")).to_be_checked()
    expect(page.get_by_label("second")).not_to_be_checked()


def test_what_a_logarithmic_axis_cannot_show_is_counted(page: Page, server: ClientServer) -> None:
    show(page, server, run("first"), query="?log=1")
    expect(page.locator("figure[data-series=kl] output")).to_have_text("1 values ≤ 0 are not on a log axis")


def test_smoothing_changes_what_is_drawn_and_not_the_table(page: Page, server: ClientServer) -> None:
    show(page, server, run("first", reward=[0.0, 1.0] * 5), query="?smooth=0.5")
    # weights 1, 1/2, 1/4 … over the ten values, the newest is 1
    weights = [0.5**age for age in range(10)]
    smoothed = sum(weights[0::2]) / sum(weights)
    expect(page.locator("figure[data-series=reward] output")).to_have_text(f"{smoothed:.4g}")
    page.locator("figure[data-series=reward] summary").click()
    expect(page.locator("figure[data-series=reward] td").nth(1)).to_have_text("1")


def test_new_data_come_into_the_view_that_is_there(page: Page, server: ClientServer) -> None:
    show(page, server, run("first"), query="?zoom=2..5&smooth=0.3")
    expect(page.locator("#live-state")).to_have_text("live")
    server.answers["/curves.json"] = {"runs": [run("first", num_rounds=11, entropy=[1.0] * 11)]}
    server.changed()
    expect(page.locator("figure[data-series=entropy]")).to_be_visible()
    assert zoom_of(page) == [2, 5]
    page.locator("figure[data-series=reward] summary").click()
    expect(page.locator("figure[data-series=reward] tr")).to_have_count(12)


def test_no_round_and_no_such_name_are_said(page: Page, server: ClientServer) -> None:
    server.answers["/curves.json"] = {"runs": []}
    server.show('<section id="curves" data-source="/curves.json"></section>')
    page.goto(server.url)
    expect(page.locator("#curves > .pictures")).to_have_attribute("data-empty", "No round has been trained yet.")
    show(page, server, run("first"))
    page.get_by_label("names").fill("nothing")
    expect(page.locator("#curves > .pictures")).to_have_attribute("data-empty", "No series has such a name.")
    assert drawn(page) == []


def test_names_of_runs_and_series_are_text(page: Page, server: ClientServer) -> None:
    show(page, server, run("<img src=x onerror=alert(1)>", **{"<b>bold</b>": [1.0] * 10}), run("second"))
    assert page.locator("figure h3").last.text_content() == "<b>bold</b>"
    assert page.locator("main img, main h3 b").count() == 0


@pytest.mark.parametrize("query", ["?zoom=9..1", "?zoom=a..b", "?x=nothing&smooth=7", "?smooth=x&log=2"])
def test_a_view_that_makes_no_sense_is_the_usual_one(page: Page, server: ClientServer, query: str) -> None:
    show(page, server, run("first"), query=query)
    expect(page.get_by_label("x axis")).to_have_value("round")
    expect(page.get_by_role("button", name="show all")).to_be_disabled()


def test_what_people_look_at_first_comes_first_and_the_rest_is_folded(page: Page, server: ClientServer) -> None:
    ones = [1.0] * 10
    show(page, server, run("first", **{"aux": ones, "seconds.load": ones, "correct_at_k.1": ones, "entropy": ones}))
    assert drawn(page) == ["reward", "correct_at_k.1", "kl", "entropy"]
    page.get_by_text("2 more series").click()
    expect(page.locator("figure[data-series=aux] canvas")).to_be_visible()
    assert drawn(page)[-2:] == ["aux", "seconds.load"]
    page.goto(page.url)
    expect(page.locator("figure[data-series=aux] canvas")).to_be_visible()
    page.get_by_label("names").fill("aux load")
    expect(page.get_by_text("more series")).to_be_hidden()
    assert drawn(page) == ["aux", "seconds.load"], "asked for by name, nothing is folded"
    page.get_by_label("names").fill("")
    expect(page.get_by_text("2 more series")).to_be_visible()


def test_a_series_that_arrives_takes_its_place_and_a_picture_keeps_the_focus(page: Page, server: ClientServer) -> None:
    show(page, server, run("first"))
    expect(page.locator("#live-state")).to_have_text("live")
    page.locator("figure[data-series=reward] .plot").focus()
    server.answers["/curves.json"] = {"runs": [run("first", correct=[1.0] * 10)]}
    server.changed()
    expect(page.locator("figure[data-series=correct]")).to_be_visible()
    assert drawn(page) == ["reward", "correct", "kl"]
    expect(page.locator("figure[data-series=reward] .plot")).to_be_focused()
