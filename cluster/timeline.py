"""What each member did and for how long: idle time by cause, and segments for a picture."""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass


class Activity(enum.StrEnum):
    """What a member does; all but the first two are idle."""

    GENERATE = "generate"
    TRAIN = "train"
    SWITCH = "switch"
    LOAD = "load"
    NO_SAMPLES = "no_samples"
    AGENTS_THINK = "agents_think"
    AWAITS_SAMPLES = "awaits_samples"
    AWAITS_JUDGE = "awaits_judge"
    AWAITS_MEMBERS = "awaits_members"
    NO_ROLE = "no_role"


BUSY = frozenset({Activity.GENERATE, Activity.TRAIN})


BESIDE = "_beside"
"""Ends the name of an overlap among the seconds of a phase: they are not part of its time."""


class Overlap(enum.StrEnum):
    """What happens beside the work of members."""

    JUDGING = "judging"
    STATE = "state"
    WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class Beside:
    """Something went on beside a member's work, from a moment to another."""

    member: str
    overlap: Overlap
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A member did one thing from a moment to another, in seconds of the simulated time."""

    member: str
    activity: Activity
    start_s: float
    end_s: float


class Timeline:
    """Sums of seconds by member and activity since the last `restart`; segments of all time where they are kept."""

    def __init__(self, *, keep_segments: bool) -> None:
        self.segments: list[Segment] | None = [] if keep_segments else None
        self.marks: list[Beside] = []
        self.beside_s: dict[Overlap, float] = defaultdict(float)
        self.since_s: dict[str, tuple[Activity, float]] = {}
        self.seconds: dict[str, dict[Activity, float]] = defaultdict(lambda: defaultdict(float))

    def switch(self, member: str, activity: Activity, now_s: float) -> None:
        """The member does this from now on."""
        before = self.since_s.get(member)
        if before is not None:
            if before[0] is activity:
                return
            self._add(member, *before, now_s)
        self.since_s[member] = (activity, now_s)

    def beside(self, member: str | None, overlap: Overlap, start_s: float, end_s: float) -> None:
        """Something happens beside the work of a member, or of none in particular."""
        self.beside_s[overlap] += end_s - start_s
        if member is not None and self.segments is not None:
            self.marks.append(Beside(member, overlap, start_s, end_s))

    def restart(self, now_s: float) -> None:
        """Forget the sums: what was before was the start of the run."""
        self.close(now_s)
        self.seconds.clear()
        self.beside_s.clear()

    def close(self, now_s: float) -> None:
        """Bring the sums up to this moment."""
        for member, (activity, since_s) in self.since_s.items():
            self._add(member, activity, since_s, now_s)
            self.since_s[member] = (activity, now_s)

    def idle_share(self) -> float:
        """Seconds of all members without work, over all seconds; 0 if there are none."""
        whole = sum(sum(of.values()) for of in self.seconds.values())
        return sum(self.shares().get(cause, 0.0) for cause in Activity if cause not in BUSY) if whole else 0.0

    def shares(self) -> dict[Activity, float]:
        """The share of each activity in the time of all members."""
        sums: dict[Activity, float] = defaultdict(float)
        for of in self.seconds.values():
            for activity, seconds in of.items():
                sums[activity] += seconds
        whole = sum(sums.values())
        return {activity: seconds / whole for activity, seconds in sums.items()} if whole else {}

    def member_shares(self) -> dict[str, dict[Activity, float]]:
        """The share of each activity in each member's time."""
        found = {}
        for member, of in self.seconds.items():
            whole = sum(of.values()) or 1.0
            found[member] = {activity: seconds / whole for activity, seconds in of.items()}
        return found

    def _add(self, member: str, activity: Activity, since_s: float, now_s: float) -> None:
        self.seconds[member][activity] += now_s - since_s
        if self.segments is not None and now_s > since_s:
            self.segments.append(Segment(member, activity, since_s, now_s))
