"""The figures of a simulated run."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weir.cluster.book import Book
from weir.cluster.simulator.generation import Generation
from weir.cluster.timeline import Beside, Segment, Timeline

MEMBERS_LISTED = 64
PICTURE = frozenset({"segments", "marks"})


@dataclass(slots=True)
class Totals:
    """Counts of a run; all but `events` since the end of the warm-up."""

    events: int = 0
    since_s: float = 0.0
    generated: float = 0.0
    trained: float = 0.0
    wasted: float = 0.0
    aborted: int = 0
    updates: int = 0
    switches: int = 0
    waited_s: float = 0.0
    update_s: float = 0.0
    last_update_s: float = 0.0

    def restart(self, now_s: float) -> None:
        """Forget what was before, but for the number of events."""
        self.since_s, self.last_update_s = now_s, now_s
        self.generated = self.trained = self.wasted = self.waited_s = self.update_s = 0.0
        self.updates = self.switches = self.aborted = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run gave, after its warm-up; times in seconds of the simulated clock unless a name says otherwise.

    Attributes:
        seconds: How long it was.
        updates: Updates in it.
        tokens_per_s: Generated tokens of the samples that were trained on, a second.
        generated_per_s: Generated tokens a second, of all samples and online sessions.
        update_period_s: Seconds from one update's end to the next one's.
        update_s: Mean seconds of an update.
        wait_s: Mean seconds from an update's end to the beginning of the next one.
        idle_share: Share of all members' time without generating or training.
        shares: Share of all members' time by activity.
        member_shares: The same for each of the first members.
        overlapped_s: Seconds of judging, of optimizer state and of weights on their way, beside the members' work.
        staleness: How many samples were trained at each staleness, in the whole run.
        hold_s: Percentiles of the seconds that a call waited: queued, moved, or while weights were loaded.
        serve_hold_s: The same of the calls of online sessions.
        aborted: Samples that were aborted, as enough others were ready.
        refilled: Samples without spread that were replaced by others, in the whole run.
        wasted_tokens: Tokens of the answers of those, as if they were whole, and of samples without spread.
        switches: How often a member changed its role.
        moved: Requests that another member continued.
        evicted: Requests that left an engine because its KV cache was full.
        cached_share: Share of the prompts' tokens that KV caches held, in the whole run; None without shared prefixes.
        events: Requests that came, were admitted and ended, verdicts, updates, loads and switches, in the whole run.
        events_per_s: Those, by seconds of this machine.
        wall_s: Seconds of this machine.
        segments: What members did when, where it was kept.
        marks: What happened beside it, where it was kept.
    """

    seconds: float
    updates: int
    tokens_per_s: float
    generated_per_s: float
    update_period_s: float | None
    update_s: float | None
    wait_s: float | None
    idle_share: float
    shares: dict[str, float]
    member_shares: dict[str, dict[str, float]]
    overlapped_s: dict[str, float]
    staleness: dict[int, int]
    hold_s: dict[str, float]
    serve_hold_s: dict[str, float]
    aborted: int
    refilled: int
    wasted_tokens: float
    switches: int
    moved: int
    evicted: int
    cached_share: float | None
    events: int
    events_per_s: float
    wall_s: float
    segments: list[Segment] = field(default_factory=list)
    marks: list[Beside] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        book: Book,
        timeline: Timeline,
        totals: Totals,
        generation: Generation,
        holds_s: tuple[array[float], array[float]],
        now_s: float,
        wall_s: float,
    ) -> Result:
        """The figures of a run that ended now."""
        seconds = now_s - totals.since_s
        updates = totals.updates
        per_update = 1 / updates if updates else None
        listed = sorted(timeline.seconds)[:MEMBERS_LISTED]
        shares = timeline.member_shares()
        return cls(
            seconds=seconds,
            updates=updates,
            tokens_per_s=totals.trained / seconds if seconds else 0.0,
            generated_per_s=totals.generated / seconds if seconds else 0.0,
            update_period_s=per_update and seconds * per_update,
            update_s=per_update and totals.update_s * per_update,
            wait_s=per_update and totals.waited_s * per_update,
            idle_share=timeline.idle_share(),
            shares={activity.value: share for activity, share in sorted(timeline.shares().items())},
            member_shares={name: {a.value: share for a, share in sorted(shares[name].items())} for name in listed},
            overlapped_s={what.value: spent for what, spent in sorted(timeline.beside_s.items())},
            staleness=dict(sorted(book.staleness.items())),
            hold_s=_percentiles(holds_s[0]),
            serve_hold_s=_percentiles(holds_s[1]),
            aborted=totals.aborted,
            refilled=book.num_refilled,
            wasted_tokens=totals.wasted,
            switches=totals.switches,
            moved=generation.num_moved,
            evicted=generation.num_evicted,
            cached_share=generation.cached_share,
            events=totals.events,
            events_per_s=totals.events / wall_s if wall_s else 0.0,
            wall_s=wall_s,
            segments=timeline.segments or [],
            marks=timeline.marks,
        )

    def figures(self) -> dict[str, Any]:
        """All figures but those of a picture, as JSON has them, rounded to six digits."""
        return {name: _rounded(getattr(self, name)) for name in self.__dataclass_fields__ if name not in PICTURE}


def _percentiles(holds_s: array[float]) -> dict[str, float]:
    if not holds_s:
        return {}
    values = np.frombuffer(holds_s, dtype=np.float64)
    p50, p90, p99 = np.percentile(values, [50, 90, 99]).tolist()
    return {"mean": float(values.mean()), "p50": p50, "p90": p90, "p99": p99, "max": float(values.max())}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _rounded(one) for key, one in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value
