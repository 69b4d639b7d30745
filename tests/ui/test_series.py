"""Values of curves before they are drawn, compared with values that were computed by hand or in another way."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page
from support_page import ClientServer, needs_chromium

pytestmark = needs_chromium


def called(page: Page, server: ClientServer, function: str, *arguments: Any, module: str = "series") -> Any:
    """What a function of the module gives."""
    server.show("")
    page.goto(server.url)
    script = "async ([module, name, given]) => (await import(`/static/${module}.js`))[name](...given)"
    return page.evaluate(script, [module, function, list(arguments)])


def test_smoothing_is_the_average_with_falling_weights_over_the_values_so_far(page: Page, server: ClientServer) -> None:
    values, weight = [1.0, None, 3.0, 2.0], 0.5
    # weights of the newest value, the one before, and so on: 1, w, w^2, over their sum
    by_hand = [1.0, None, (3 + 0.5 * 1) / 1.5, (2 + 0.5 * 3 + 0.25 * 1) / 1.75]
    assert called(page, server, "smoothed", values, weight) == pytest.approx(by_hand)


def test_without_a_weight_and_for_a_constant_smoothing_changes_nothing(page: Page, server: ClientServer) -> None:
    assert called(page, server, "smoothed", [1, 5, None, 2], 0) == [1, 5, None, 2]
    assert called(page, server, "smoothed", [0.1] * 7, 0.9) == [0.1] * 7


def test_points_come_in_the_order_of_x_and_those_without_x_are_left_out(page: Page, server: ClientServer) -> None:
    points = called(page, server, "ordered", [3, None, 1, 2], [30, 99, None, 20])
    assert points == {"x": [1, 2, 3], "y": [None, 20, 30]}


def test_a_logarithmic_axis_shows_positive_values_only(page: Page, server: ClientServer) -> None:
    assert called(page, server, "positive", [0, -1, None, 0.5]) == [None, None, None, 0.5]


def test_a_histogram_counts_every_value_once_in_bins_that_reach_from_the_least_to_the_greatest(
    page: Page, server: ClientServer
) -> None:
    bins = called(page, server, "histogram", [0, 1, 1, 2, 2, 2, 3, 3, 4])
    assert bins["from"] == pytest.approx([0, 4 / 3, 8 / 3]) and bins["width"] == pytest.approx(4 / 3)
    assert bins["counts"] == [3, 3, 3]


def test_a_histogram_of_one_value_has_one_bin_and_of_none_has_no_bin(page: Page, server: ClientServer) -> None:
    assert called(page, server, "histogram", [7, 7, 7]) == {"from": [7], "width": 1, "counts": [3]}
    assert called(page, server, "histogram", [])["counts"] == []


@pytest.mark.parametrize(
    ("height", "text"),
    [(0, "0"), (0.00015000000000000001, "1.5e-4"), (0.0015, "0.0015"), (-0.25, "-0.25"), (2500, "2,500"), (None, "")],
)
def test_small_heights_have_digits_of_their_own(
    page: Page, server: ClientServer, height: float | None, text: str
) -> None:
    assert called(page, server, "heightText", height, module="plot") == text
