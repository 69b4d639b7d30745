"""What members did when, as an SVG picture without script or font: a line a member, a colour an activity."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from weir.cluster.timeline import Activity, Beside, Overlap, Segment

COLOURS = {
    Activity.GENERATE: "#4c78a8",
    Activity.TRAIN: "#f58518",
    Activity.SWITCH: "#b279a2",
    Activity.LOAD: "#72b7b2",
    Activity.NO_SAMPLES: "#e9e9e9",
    Activity.AGENTS_THINK: "#d4e6c3",
    Activity.AWAITS_SAMPLES: "#f3dcdc",
    Activity.AWAITS_JUDGE: "#e6c3d8",
    Activity.AWAITS_MEMBERS: "#efe3b8",
    Activity.NO_ROLE: "#ffffff",
}
BESIDE = {Overlap.STATE: "#7f3c8d", Overlap.WEIGHTS: "#11605b"}
MARK_HEIGHT = 3
WIDTH, LEFT, TOP, BOTTOM = 960, 110, 30, 24
MEMBERS_SHOWN = 64


def gantt(
    segments: Sequence[Segment],
    title: str,
    *,
    start_s: float = 0.0,
    end_s: float | None = None,
    beside: Sequence[Beside] = (),
) -> str:
    """The picture of a stretch of time; of more than 64 members it shows the first.

    `beside` are lines at the foot of a member's row: what happens while it works.
    """
    names = sorted({segment.member for segment in segments}, key=_by_number)[:MEMBERS_SHOWN]
    end = max((segment.end_s for segment in segments), default=1.0) if end_s is None else end_s
    height = 14 if len(names) <= 16 else 8
    scale = (WIDTH - LEFT - 10) / max(end - start_s, 1e-9)
    rows = {name: TOP + index * height for index, name in enumerate(names)}
    marks, seen = [], set()
    for one in segments:
        if one.member in rows and one.end_s > start_s and one.start_s < end:
            left, right = max(one.start_s, start_s), min(one.end_s, end)
            seen.add(one.activity)
            marks.append(
                f'<rect x="{LEFT + (left - start_s) * scale:.1f}" y="{rows[one.member]}" '
                f'width="{(right - left) * scale:.2f}" height="{height - 1}" fill="{COLOURS[one.activity]}"/>'
            )
    for mark in beside:
        if mark.member in rows and mark.end_s > start_s and mark.start_s < end:
            left, right = max(mark.start_s, start_s), min(mark.end_s, end)
            marks.append(
                f'<rect x="{LEFT + (left - start_s) * scale:.1f}" y="{rows[mark.member] + height - 1 - MARK_HEIGHT}" '
                f'width="{(right - left) * scale:.2f}" height="{MARK_HEIGHT}" fill="{BESIDE[mark.overlap]}"/>'
            )
    bottom = TOP + len(names) * height
    labels = [
        f'<text x="{LEFT - 6}" y="{rows[name] + height - 3}" text-anchor="end">{escape(name)}</text>'
        for name in (names if height > 8 else names[::4])
    ]
    step = (end - start_s) / 6
    labels += [
        f'<text x="{LEFT + number * step * scale:.0f}" y="{bottom + 14}">{start_s + number * step:.0f} s</text>'
        for number in range(7 if step else 0)
    ]
    labels += _legend(sorted(seen))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 40} {bottom + BOTTOM}" '
        f'font-family="sans-serif" font-size="10"><title>{escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(marks)}{"".join(labels)}</svg>\n'
    )


def _legend(activities: Sequence[Activity]) -> list[str]:
    parts = []
    for index, activity in enumerate(activities):
        left = LEFT + index * 110
        parts.append(f'<rect x="{left}" y="8" width="10" height="10" fill="{COLOURS[activity]}" stroke="#999"/>')
        parts.append(f'<text x="{left + 14}" y="17">{activity.value.replace("_", " ")}</text>')
    return parts


def _by_number(name: str) -> tuple[str, int]:
    head, _, number = name.rpartition("-")
    return head, int(number) if number.isdigit() else 0
