"""What a policy sees and says: the state of a cluster, events, actions.

A policy is a pure function `(State, Event) -> Sequence[Action]`. Its host, the simulator or a controller of real
processes, keeps the state through `weir.cluster.book.Book`, calls the policy once for each event, and does what it
says in the order in which it says it. A policy reads the state and never changes it. It decides by the state, not by
the history of events: the same decision is reached when an event is lost or repeated.

Versions are whole numbers: version v is the weights after v updates. A sample has the version under which it was
started, and its staleness is the version that the update which takes it started from, minus that.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal


class Tag(enum.StrEnum):
    """What a member is able to do."""

    ROLLOUT = "rollout"
    TRAIN = "train"


class Role(enum.StrEnum):
    """What a member does now."""

    NONE = "none"
    ROLLOUT = "rollout"
    TRAIN = "train"


BOTH = frozenset({Tag.ROLLOUT, Tag.TRAIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The rules of a run.

    Attributes:
        batch: Samples of one update, at most.
        max_staleness: Versions that may lie between a sample's start and the update that takes it. A fraction bounds
            the share of a version's samples that may be older: with 0.5, half of them are started a version ahead.
        updates_per_version: Updates before the members that generate get new weights.
        train_members: How many members train; those with the highest train_priority are taken.
        in_flight_share: Samples in flight at the start, as a multiple of KV capacity over learned tokens of a sample.
        when: Rules of `weir.cluster.due` upon any of which an update is due.
        least: An update takes no fewer samples than this, whatever the rules say; at most a batch.
        tokens: What the rule `tokens` asks for: generated tokens of the ready samples.
        seconds: What the rule `seconds` asks for: seconds since the last update began.
        serve_share: Share of the members that can generate which always take calls, for those with the tag `serve`; 0:
            there are no such calls.
        oversample: Samples of a version that are started beyond what its updates take, as a share of a batch.
        stragglers: What becomes of those that are not finished once enough are ready: `abort`, or `keep` as long as a
            later update may take them.
        refill: Samples whose rewards are all alike that are replaced under a version, at most, as a share of a batch.
    """

    batch: int
    max_staleness: float = 1
    updates_per_version: int = 1
    train_members: int = 1
    in_flight_share: float = 1.0
    when: tuple[str, ...] = ("batch",)
    least: int = 1
    tokens: float = 0.0
    seconds: float = 0.0
    serve_share: float = 0.0
    oversample: float = 0.0
    stragglers: Literal["abort", "keep"] = "abort"
    refill: float = 0.0

    @property
    def takes_fewer(self) -> bool:
        """Whether an update may take fewer samples than a batch; a later one takes more then, if they are too old."""
        return self.when != ("batch",)


@dataclass(slots=True, kw_only=True)
class Member:
    """An engine, a training slot, or both.

    Attributes:
        name: Its name in the cluster.
        tags: What it is able to do.
        kind: Kind of its device, a name in the table of costs.
        train_priority: Members with a higher one train first.
        kv_tokens: Tokens that its KV cache holds while it generates.
        role: What it does, or is on the way to do while `moving`.
        moving: Whether it changes its role.
        loading: Whether it loads weights.
        version: Weights that it generates with.
    """

    name: str
    tags: frozenset[Tag] = BOTH
    kind: str = ""
    train_priority: float = 0.0
    kv_tokens: float = 0.0
    role: Role = Role.NONE
    moving: bool = False
    loading: bool = False
    version: int = 0


@dataclass(slots=True, kw_only=True)
class State:
    """A cluster at one moment. Only `weir.cluster.book.Book` changes it.

    Attributes:
        settings: The rules of the run.
        members: The members that live, by name.
        updates: Number of updates that are complete.
        version: Number of updates that are complete and whose weights are given out.
        training: The members that train now; empty between updates.
        running: Samples that are generated, by their version.
        judging: Samples that wait for their reward, by version.
        ready: Samples that no update has taken, by version.
        num_running: Sum of `running`.
        num_ready: Sum of `ready`.
        ready_tokens: Generated tokens of the samples in `ready`.
        since_update_s: Seconds since the last update began, or since the run did.
        events: Those events since then that may make an update due.
        started: Samples that were started in all.
        aborted: Samples that were aborted since the present version began.
        refilled: Samples that were replaced since then, because their rewards are all alike.
        num_moving: Members that change their role.
        num_loading: Members that load weights.
        rotation: Names of the members that generate.
        behind: Those of the rotation, or loading, whose weights are not the newest.
        kv_tokens: Sum of the rotation's KV capacity.
        finish_rate: Samples that become ready each second, learned; 0 while unknown.
        episode_s: Seconds from a sample's start to its end, learned; 0 while unknown.
        episode_tokens: Tokens of KV cache that a sample holds on average, learned; 0 while unknown.
        switch_s: Seconds of changing a role and changing it back, measured; 0 while unknown.
        in_flight_share: The multiple of `Settings.in_flight_share` as it was tuned.
    """

    settings: Settings
    members: dict[str, Member] = field(default_factory=dict)
    updates: int = 0
    version: int = 0
    training: frozenset[str] = frozenset()
    running: dict[int, int] = field(default_factory=dict)
    judging: dict[int, int] = field(default_factory=dict)
    ready: dict[int, int] = field(default_factory=dict)
    num_running: int = 0
    num_ready: int = 0
    ready_tokens: float = 0.0
    since_update_s: float = 0.0
    events: frozenset[Event] = frozenset()
    started: int = 0
    aborted: int = 0
    refilled: int = 0
    num_moving: int = 0
    num_loading: int = 0
    rotation: set[str] = field(default_factory=set)
    behind: set[str] = field(default_factory=set)
    kv_tokens: float = 0.0
    finish_rate: float = 0.0
    episode_s: float = 0.0
    episode_tokens: float = 0.0
    switch_s: float = 0.0
    in_flight_share: float = 1.0

    @property
    def serving(self) -> set[str]:
        """The members that take calls now: those of the rotation that do not load."""
        return {name for name in self.rotation if not self.members[name].loading}

    @property
    def serve_least(self) -> int:
        """Members that are to take calls at any time; one that can generate is left over for training, where it may."""
        share = self.settings.serve_share
        if not share:
            return 0
        able = sum(Tag.ROLLOUT in member.tags for member in self.members.values())
        return max(1, min(math.ceil(share * able), able - 1))

    @property
    def samples_allowed(self) -> int:
        """Samples that may still be started under this version, so that none becomes too old.

        None of the surplus is started once a batch is ready, or for a version whose last update runs: it would only be
        aborted.
        """
        rules = self.settings
        in_all = (self.version + 1 + rules.max_staleness) * rules.batch * rules.updates_per_version
        helps = self.num_ready < rules.batch and not (self.training and self.is_last_update)
        return int(in_all) + (self.extra if helps else 0) - self.started

    @property
    def is_last_update(self) -> bool:
        """Whether the next update, or the one that runs, is the last from this version."""
        return (self.updates + 1) % self.settings.updates_per_version == 0

    @property
    def extra(self) -> int:
        """Samples beyond what updates take that may be started under this version, or aborted once they are."""
        rules = self.settings
        return max(int(rules.oversample * rules.batch) - self.aborted, 0) if rules.oversample else 0

    @property
    def too_many(self) -> int:
        """Samples that no update would take in time, if one took the oldest ready ones now.

        Where updates may be smaller than a batch, one takes all samples that must be taken.
        """
        rules, oldest = self.settings, self.oldest_allowed
        if rules.takes_fewer:
            return max(self.unfinished_until(oldest) - self._updates_until(oldest) * rules.batch, 0)
        too_old = max(self._left_of(oldest) - self._updates_until(oldest) * rules.batch, 0)
        for version in range(oldest + 1, self.version):  # whose samples need updates that younger ones would take now
            beyond = self._left_of(version) - self._updates_until(version) * rules.batch
            too_old = max(too_old, min(beyond, self.unfinished_until(version)))
        return too_old

    def _left_of(self, version: int) -> int:
        """Samples of that version and older ones that are left by an update which takes the oldest ready ones now."""
        return self.unfinished_until(version) + max(self.ready_until(version) - self.settings.batch, 0)

    def _updates_until(self, version: int) -> int:
        """Updates after the next one that may still take samples of that version."""
        last = version + math.ceil(self.settings.max_staleness)
        return (last + 1) * self.settings.updates_per_version - self.updates - 1

    @property
    def oldest_allowed(self) -> int:
        """Samples of an older version than this would be too old for an update that starts now."""
        return self.version - math.ceil(self.settings.max_staleness)

    def update_keeps_bound(self) -> bool:
        """Whether an update that takes the oldest ready samples now leaves the others time.

        Samples that are as old as is allowed must be taken before the next version, so no more of them may be left than
        this version's other updates take. The update is to wait for those that are unfinished, otherwise.
        """
        return not self.too_many

    @property
    def old_ready(self) -> int:
        """Ready samples that are as old as is allowed."""
        return self.ready_until(self.oldest_allowed)

    def ready_until(self, version: int) -> int:
        """Ready samples of that version or an older one."""
        return sum(count for of, count in self.ready.items() if of <= version)

    def unfinished_until(self, version: int) -> int:
        """Samples of that version or an older one that are still generated or judged."""
        generated = sum(count for of, count in self.running.items() if of <= version)
        return generated + sum(count for of, count in self.judging.items() if of <= version)


class Event(enum.StrEnum):
    """What happened."""

    STARTED = "started"
    SAMPLE_GENERATED = "sample_generated"
    SAMPLE_READY = "sample_ready"
    MEMBER_SETTLED = "member_settled"
    WEIGHTS_LOADED = "weights_loaded"
    TRAINED = "trained"
    TRAINING_FAILED = "training_failed"
    MEMBER_LOST = "member_lost"
    MEMBER_JOINED = "member_joined"
    KV_EXHAUSTED = "kv_exhausted"
    TIME = "time"
    SAMPLES_ABORTED = "samples_aborted"


@dataclass(frozen=True, slots=True)
class Start:
    """Start that many new samples on the members of the rotation."""

    count: int


@dataclass(frozen=True, slots=True)
class Assign:
    """Give members a role. Calls of a member that generates move to others, or wait, with their partial output."""

    names: tuple[str, ...]
    role: Role


@dataclass(frozen=True, slots=True)
class Load:
    """Load the newest weights into members of the rotation. Their calls are held meanwhile."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Train:
    """Take the oldest ready samples, one batch of them, and train on these members."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Abort:
    """Abort so many samples: those that would become too old, then those that are unfinished, the oldest first."""

    count: int


@dataclass(frozen=True, slots=True)
class Tune:
    """Change `State.in_flight_share`."""

    in_flight_share: float


Action = Start | Assign | Load | Train | Abort | Tune
Policy = Callable[[State, Event], Sequence[Action]]
