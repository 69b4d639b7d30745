"""Charts: values in, SVG out."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from weir.scripts.cli.report.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, line_chart, stacked_bars


def elements(svg: str, tag: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg[: svg.index("</svg>") + len("</svg>")])
    return list(root.iter(tag))


def test_a_line_runs_from_corner_to_corner_of_the_plot() -> None:
    (line,) = elements(line_chart({"reward": [(0, 0.0), (10, 1.0)]}, x_title="version", high=1.0), "polyline")
    assert line.attrib["points"] == f"{LEFT:.1f},{HEIGHT - BOTTOM:.1f} {WIDTH - RIGHT:.1f},{TOP:.1f}"


def test_stacked_bars_add_up_to_the_height_of_the_plot() -> None:
    bars = elements(stacked_bars([("1", {"judge": 1.0, "train": 3.0})], x_title="round", unit=" s"), "rect")
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert sum(heights) == HEIGHT - BOTTOM - TOP
    assert heights[1] == 3 * heights[0]
    assert [bar[0].text for bar in bars] == ["1, judge: 1 s", "1, train: 3 s"]


def test_a_part_that_a_bar_lacks_takes_no_room() -> None:
    bars = elements(stacked_bars([("1", {"a": 1.0}), ("2", {"b": 1.0})], x_title="x"), "rect")
    assert [float(bar.attrib["height"]) > 0 for bar in bars] == [True, False, False, True]


@pytest.mark.parametrize(
    ("low", "high", "whole", "ticks"),
    [
        (0, 1, False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 19.1, False, [0, 5, 10, 15]),
        (0, 2, True, [0, 1, 2]),
        (3, 50, True, [10, 20, 30, 40, 50]),
        (7, 7, True, [7]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, whole: bool, ticks: list[float]) -> None:
    assert Axis(low, high, 0, 100).ticks(whole=whole) == pytest.approx(ticks)


def test_names_are_escaped() -> None:
    assert "<b>" not in line_chart({"<b>": [(0, 1.0)]}, x_title="<b>")
    assert "<b>" not in stacked_bars([("<b>", {"<b>": 1.0})], x_title="x")


def test_a_chart_of_nothing_says_so() -> None:
    assert "Nothing was recorded" in line_chart({}, x_title="x")
    assert "Nothing was recorded" in stacked_bars([], x_title="x")
