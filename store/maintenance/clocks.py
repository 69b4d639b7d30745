"""Clocks that jumped, as far as records show it. Only the order of equal calls in a tree depends on clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weir.store.log.segment_format import Segment, created_us

FUTURE_US = 60_000_000  # tolerance: another machine's clock may be ahead by this much


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockJump:
    """Times that contradict each other."""

    where: str  # a file or a segment
    detail: str


def call_jumps(where: str, times: Sequence[tuple[str, int, int]], now_us: int) -> Iterator[ClockJump]:
    """Calls (id, started, finished) that ended before they began, or lie in the future."""
    back = [call_id for call_id, started_us, finished_us in times if finished_us < started_us]
    ahead = [call_id for call_id, started_us, _ in times if started_us > now_us + FUTURE_US]
    if back:
        yield ClockJump(where=where, detail=f"{len(back)} calls ended before they began, such as {back[0]}")
    if ahead:
        yield ClockJump(where=where, detail=f"{len(ahead)} calls lie in the future, such as {ahead[0]}")


def writer_jumps(segments: Sequence[Segment]) -> Iterator[ClockJump]:
    """Segments that began before the segment in front of them."""
    last: dict[str, tuple[str, int]] = {}
    for segment in segments:
        begun_us = created_us(segment)
        if begun_us is None:
            continue
        before = last.get(segment.writer)
        if before is not None and begun_us < before[1]:
            back_s = (before[1] - begun_us) / 1e6
            yield ClockJump(where=segment.segment_id, detail=f"it was begun {back_s:.1f} s before {before[0]}")
        last[segment.writer] = (segment.segment_id, begun_us)
