"""Small charts as inline SVG, as pure functions. They need no script, no font and no file outside the page.

Colours are the page's CSS variables `--series-0` … `--series-7`, so that a page has one palette, light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 34
NUM_COLOURS = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear scale from values to pixels."""

    low: float
    high: float
    start_px: float
    end_px: float

    def px(self, value: float) -> float:
        """The pixel position of `value`."""
        span = (self.high - self.low) or 1.0
        return self.start_px + (value - self.low) / span * (self.end_px - self.start_px)

    def ticks(self, *, whole: bool = False) -> list[float]:
        """Up to six round values over the axis; `whole`: integers only, as for version numbers."""
        span = (self.high - self.low) or 1.0
        power = 10.0 ** math.floor(math.log10(span / 5))
        step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if span / (power * factor) <= 5.0001)
        if whole:
            step = math.ceil(step)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def line_chart(series: Mapping[str, Sequence[tuple[float, float]]], *, x_title: str, high: float | None = None) -> str:
    """One line for each named series of (x, y) points; y starts at 0."""
    points = [point for line in series.values() for point in line]
    if not points:
        return _empty()
    xs = [x for x, _ in points]
    x_axis = Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    y_axis = Axis(0.0, high or max(y for _, y in points) or 1.0, HEIGHT - BOTTOM, TOP)
    marks = []
    for number, line in enumerate(series.values()):
        path = " ".join(f"{x_axis.px(x):.1f},{y_axis.px(y):.1f}" for x, y in line)
        marks.append(f'<polyline points="{path}" fill="none" stroke="{_colour(number)}" stroke-width="2"/>')
        marks += [_dot(x_axis.px(x), y_axis.px(y), number, f"{x_title} {x:g}: {y:.3f}") for x, y in line]
    return _frame(x_axis, y_axis, x_title, "".join(marks)) + _legend(list(series))


def stacked_bars(
    bars: Sequence[tuple[str, Mapping[str, float]]], *, x_title: str, unit: str = "", high: float | None = None
) -> str:
    """One bar for each (label, {part: value}), parts stacked in the order in which they first appear."""
    parts = list(dict.fromkeys(part for _, values in bars for part in values))
    if not parts:
        return _empty()
    y_axis = Axis(0.0, high or max(sum(values.values()) for _, values in bars) or 1.0, HEIGHT - BOTTOM, TOP)
    x_axis = Axis(0.0, float(len(bars)), LEFT, WIDTH - RIGHT)
    width = (WIDTH - RIGHT - LEFT) / len(bars)
    marks = []
    for index, (label, values) in enumerate(bars):
        bottom = 0.0
        for number, part in enumerate(parts):
            value = values.get(part, 0.0)
            tip = f"{label}, {part}: {value:.3g}{unit}"
            marks.append(_bar(x_axis.px(index), y_axis.px(bottom), y_axis.px(bottom + value), width, number, tip))
            bottom += value
    labels = _bar_labels([label for label, _ in bars], x_axis, width)
    return _frame(None, y_axis, x_title, "".join(marks) + labels) + _legend(parts)


def _frame(x_axis: Axis | None, y_axis: Axis, x_title: str, marks: str) -> str:
    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_axis.px(t):.1f}" y2="{y_axis.px(t):.1f}" class="grid"/>'
        f'<text x="{LEFT - 6}" y="{y_axis.px(t) + 4:.1f}" text-anchor="end">{t:.3g}</text>'
        for t in y_axis.ticks()
    )
    if x_axis is not None:
        base = HEIGHT - BOTTOM + 14
        grid += "".join(
            f'<text x="{x_axis.px(t):.1f}" y="{base}" text-anchor="middle">{t:.0f}</text>'
            for t in x_axis.ticks(whole=True)
        )
    title = f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_title)}</text>'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(x_title)}">{grid}{marks}{title}</svg>'


def _bar(left: float, bottom: float, top: float, width: float, number: int, tip: str) -> str:
    gap = min(2.0, width * 0.1)
    return (
        f'<rect x="{left + gap:.1f}" y="{top:.1f}" width="{width - 2 * gap:.1f}" height="{bottom - top:.1f}" '
        f'fill="{_colour(number)}"><title>{escape(tip)}</title></rect>'
    )


def _bar_labels(labels: Sequence[str], x_axis: Axis, width: float) -> str:
    step = max(1, len(labels) // 12)
    base = HEIGHT - BOTTOM + 14
    return "".join(
        f'<text x="{x_axis.px(i) + width / 2:.1f}" y="{base}" text-anchor="middle">{escape(label)}</text>'
        for i, label in enumerate(labels)
        if i % step == 0
    )


def _dot(x: float, y: float, number: int, tip: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{_colour(number)}"><title>{escape(tip)}</title></circle>'


def _legend(names: Sequence[str]) -> str:
    items = "".join(
        f'<span><i style="background:{_colour(number)}"></i>{escape(name)}</span>' for number, name in enumerate(names)
    )
    return f'<p class="legend">{items}</p>'


def _colour(number: int) -> str:
    return f"var(--series-{number % NUM_COLOURS})"


def _empty() -> str:
    return '<p class="empty">Nothing was recorded for this chart.</p>'
