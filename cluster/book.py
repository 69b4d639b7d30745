"""The bookkeeping between a policy and its host: it applies actions and events to the state, and refuses what is wrong.

Each method that a host calls corresponds to something that happened. A sample's number is given out once; an update
takes a sample out of `ready` and either ends (`trained`) or fails and puts it back. So no sample is trained twice.

Of real processes a host learns late: a sample may be abandoned, one that nobody started here adopted, and an update may
have taken others than it was told (`took`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from weir.cluster.due import EVENTS, fewest
from weir.cluster.errors import PolicyFault
from weir.cluster.state import Event, Member, Role, Settings, State, Tag

LEARNING_RATE = 0.05
"""Share of a new observation in a learned mean."""


class Book:
    """The state of a cluster, and the only way to change it."""

    def __init__(self, settings: Settings, members: Iterable[Member]) -> None:
        self.state = State(settings=settings, in_flight_share=settings.in_flight_share)
        self.sample_version: dict[int, int] = {}  # of samples that no update has ended with
        self.staleness: dict[int, int] = {}  # how many samples were trained at each staleness
        self.num_aborted = 0
        self.num_refilled = 0
        self._ready: list[tuple[int, int]] = []  # heap of (version, sample)
        self._taken: list[int] = []
        self._tokens: dict[int, float] = {}  # of ready and taken samples
        self._update_s: float | None = None  # when the last update began
        self._due_by: tuple[float, frozenset[Event]] = (0.0, frozenset())  # seconds and events when it did
        self._judging: set[int] = set()
        self._next = 0  # number of the next sample
        self._move_version: dict[str, int] = {}
        self._last_ready_s: float | None = None
        self._gap_s = 0.0
        for member in members:
            self.join(member)

    def happened(self, event: Event, now_s: float) -> None:
        """What the state keeps of an event and of the time, for rules."""
        if self._update_s is None:
            self._update_s = now_s
        self.state.since_update_s = now_s - self._update_s
        if event in EVENTS:
            self.state.events |= {event}

    def join(self, member: Member) -> None:
        """Add a member without a role.

        Raises:
            PolicyFault: There is a member of that name.
        """
        if member.name in self.state.members:
            raise PolicyFault(f"member {member.name} joins twice")
        member.role, member.moving, member.loading = Role.NONE, False, False
        self.state.members[member.name] = member

    def lose(self, name: str) -> bool:
        """Remove a member that died; returns whether it was training, so that the update has failed."""
        member = self.state.members.pop(name)
        self.state.num_moving -= member.moving
        self.state.num_loading -= member.loading
        self._leave_rotation(member)
        return name in self.state.training

    def start(self, count: int) -> range:
        """Give out the numbers of new samples of the present version.

        Raises:
            PolicyFault: No member generates, or one of them generates with older weights.
        """
        state = self.state
        if count < 1 or not state.rotation or state.behind:
            raise PolicyFault(f"{count} samples started with {len(state.rotation)} members, {len(state.behind)} behind")
        numbers = range(self._next, self._next + count)
        self._next += count
        self.sample_version.update(dict.fromkeys(numbers, state.version))
        state.started += count
        state.num_running += count
        state.running[state.version] = state.running.get(state.version, 0) + count
        return numbers

    def generated(self, sample: int, *, seconds: float = 0.0, kv_tokens: float = 0.0) -> None:
        """A sample's last token was generated; it waits for its reward now."""
        state, version = self.state, self.sample_version[sample]
        _take(state.running, version, 1)
        state.num_running -= 1
        state.judging[version] = state.judging.get(version, 0) + 1
        self._judging.add(sample)
        state.episode_s = _learned(state.episode_s, seconds)
        state.episode_tokens = _learned(state.episode_tokens, kv_tokens)

    def judged(self, sample: int, now_s: float, *, tokens: float = 0.0, kv_tokens: float = 0.0) -> None:
        """A sample has its reward and can be trained on.

        `tokens` were generated for it; `kv_tokens` is what it held of KV cache, where nobody knew it before.
        """
        state, version = self.state, self.sample_version[sample]
        _take(state.judging, version, 1)
        self._judging.discard(sample)
        state.ready[version] = state.ready.get(version, 0) + 1
        state.num_ready += 1
        self._tokens[sample] = tokens
        state.ready_tokens += tokens
        if kv_tokens:
            state.episode_tokens = _learned(state.episode_tokens, kv_tokens)
        heapq.heappush(self._ready, (version, sample))
        if self._last_ready_s is not None:
            self._gap_s = _learned(self._gap_s, now_s - self._last_ready_s)
            state.finish_rate = 1.0 / self._gap_s if self._gap_s else 0.0
        self._last_ready_s = now_s

    def resume(self, version: int) -> None:
        """Begin at a version that an earlier host reached: every version before it took its samples."""
        assert not self._next and not self.state.updates, "a book is resumed before anything happens"
        rules = self.state.settings
        self.state.version, self.state.updates = version, version * rules.updates_per_version
        self.state.started = self.state.updates * rules.batch

    def adopt(self, version: int) -> int | None:
        """A sample that was started elsewhere waits for `judged`; returns its number.

        None where one would become too old.
        """
        state = self.state
        version = min(version, state.version)
        if version < state.oldest_allowed or any(self._is_full(of) for of in range(version, state.version + 1)):
            return None
        sample, self._next = self._next, self._next + 1
        self.sample_version[sample] = version
        state.started += 1
        state.judging[version] = state.judging.get(version, 0) + 1
        self._judging.add(sample)
        return sample

    def abandon(self, sample: int) -> None:
        """A sample will never be trained on: another one may be started for it. One that an update has stays."""
        if sample in self._taken:
            return
        state, version = self.state, self.sample_version.pop(sample)
        if (version, sample) in self._ready:
            self._ready.remove((version, sample))
            heapq.heapify(self._ready)
            _take(state.ready, version, 1)
            state.num_ready -= 1
            state.ready_tokens -= self._tokens.pop(sample)
        elif sample in self._judging:
            self._judging.discard(sample)
            _take(state.judging, version, 1)
        else:
            _take(state.running, version, 1)
            state.num_running -= 1
        state.started -= 1

    def refill(self, sample: int) -> bool:
        """A sample teaches nothing, as its rewards are all alike: it is abandoned, and another one may be started.

        False where an update has it, or where `Settings.refill` are replaced in this version already.
        """
        state = self.state
        if sample in self._taken or state.refilled + 1 > state.settings.refill * state.settings.batch:
            return False
        self.abandon(sample)
        state.refilled += 1
        self.num_refilled += 1
        return True

    def abort(self, count: int) -> list[int]:
        """So many samples will never be trained on, and no others are started for them in this version.

        Those that would become too old go first, then the unfinished ones, each the oldest first.
        """
        limit, batch = self.state.oldest_allowed, self.state.settings.batch
        ready = {sample for _, sample in self._ready}
        taken = set(self._taken)
        unfinished = sorted((v, sample) for sample, v in self.sample_version.items() if sample not in ready | taken)
        surplus = [(v, sample) for v, sample in sorted(self._ready) if v <= limit][batch:]
        order = [
            *(one for one in unfinished if one[0] <= limit),
            *surplus,
            *(one for one in unfinished if one[0] > limit),
        ]
        chosen = [sample for _, sample in order[:count]]
        for sample in chosen:
            self.abandon(sample)
        self.state.aborted += len(chosen)
        self.num_aborted += len(chosen)
        return chosen

    def took(self, samples: Sequence[int]) -> None:
        """The running update has these samples, which are ready or which it was told, and no others.

        It counts as a batch, however many they are.
        """
        told = len(self._taken) or self.state.settings.batch
        for sample in self._taken:
            self._put_back(sample)
        self._taken = list(samples)
        for sample in samples:
            version = self.sample_version[sample]
            self._ready.remove((version, sample))
            _take(self.state.ready, version, 1)
            self.state.ready_tokens -= self._tokens[sample]
        heapq.heapify(self._ready)
        self.state.num_ready -= len(samples)
        self.state.started += told - len(samples)

    def assign(self, names: Sequence[str], role: Role) -> None:
        """Members are on the way to a role; they leave the rotation at once.

        Raises:
            PolicyFault: One lacks the tag, is on the way already, loads weights or trains.
        """
        for name in names:
            member = self.state.members[name]
            if role is not Role.NONE and Tag(role.value) not in member.tags:
                raise PolicyFault(f"{name} has no tag {role}")
            if member.moving or member.loading or name in self.state.training:
                raise PolicyFault(f"{name} is busy and cannot become {role}")
            self._leave_rotation(member)
            member.role, member.moving = role, True
            self._move_version[name] = self.state.version
            self.state.num_moving += 1

    def settled(self, name: str, switch_s: float = 0.0) -> None:
        """A member has its role; one that generates has the weights that were newest when it began to move."""
        state, member = self.state, self.state.members[name]
        member.moving = False
        state.num_moving -= 1
        state.switch_s = _learned(state.switch_s, 2 * switch_s)
        if member.role is Role.ROLLOUT:
            member.version = self._move_version[name]
            state.rotation.add(name)
            state.kv_tokens += member.kv_tokens
            if member.version < state.version:
                state.behind.add(name)

    def load(self, names: Sequence[str]) -> None:
        """Members of the rotation begin to load the newest weights.

        Raises:
            PolicyFault: One does not generate, or loads already.
        """
        for name in names:
            member = self.state.members[name]
            if name not in self.state.rotation or member.loading:
                raise PolicyFault(f"{name} cannot load weights: it does not generate, or loads already")
            member.loading = True
            self._move_version[name] = self.state.version
            self.state.num_loading += 1

    def loaded(self, name: str) -> None:
        """A member has loaded the weights that were newest when it began."""
        member = self.state.members[name]
        member.loading, member.version = False, self._move_version[name]
        self.state.num_loading -= 1
        if member.version == self.state.version:
            self.state.behind.discard(name)

    def load_failed(self, name: str) -> None:
        """A member continues to generate with the weights that it had."""
        self.state.members[name].loading = False
        self.state.num_loading -= 1

    def train(self, names: Sequence[str]) -> list[int]:
        """Take the oldest ready samples for an update on these members; returns their numbers.

        They are a batch, or by other rules fewer, and more only where they would become too old otherwise. However many
        they are, they count as a batch where samples are bounded: a version comes of them like of any others.

        Raises:
            PolicyFault: An update runs, a member does not train, or samples are missing, too old or would become so.
        """
        state = self.state
        if state.training or not names or state.num_ready < fewest(state):
            raise PolicyFault(f"no update can start: {len(state.training)} members train, {state.num_ready} are ready")
        if any(state.members[name].role is not Role.TRAIN or state.members[name].moving for name in names):
            raise PolicyFault("a member of the update does not have the role train")
        if min(state.ready) < state.oldest_allowed or not state.update_keeps_bound():
            raise PolicyFault(f"the update from version {state.version} takes or leaves a sample that is too old")
        count = min(state.num_ready, state.settings.batch)
        if state.settings.takes_fewer:
            count = max(count, state.old_ready)
        self._taken = [heapq.heappop(self._ready)[1] for _ in range(count)]
        for sample in self._taken:
            _take(state.ready, self.sample_version[sample], 1)
            state.ready_tokens -= self._tokens[sample]
        state.num_ready -= count
        state.started += state.settings.batch - count
        state.training = frozenset(names)
        self._due_by = state.since_update_s, state.events
        self._update_s = None if self._update_s is None else self._update_s + state.since_update_s
        state.since_update_s, state.events = 0.0, frozenset()
        return list(self._taken)

    def trained(self) -> list[int]:
        """The update is complete, and there may be a new version. Returns the samples that it took."""
        state, taken = self.state, self._taken
        for sample in taken:
            self._tokens.pop(sample)
            age = state.version - self.sample_version.pop(sample)
            self.staleness[age] = self.staleness.get(age, 0) + 1
        state.updates += 1
        state.training = frozenset()
        if state.updates % state.settings.updates_per_version == 0:
            state.version += 1
            state.aborted = state.refilled = 0
            state.behind = set(state.rotation)
        self._taken = []
        return taken

    def training_failed(self) -> None:
        """The update is lost with a member: its samples are ready again."""
        for sample in self._taken:
            self._put_back(sample)
        self.state.started -= self.state.settings.batch - len(self._taken)
        seconds, events = self._due_by
        self._update_s = None if self._update_s is None else self._update_s - seconds
        self.state.since_update_s += seconds
        self.state.events |= events
        self.state.training = frozenset()
        self._taken = []

    def _is_full(self, version: int) -> bool:
        """Whether the updates that may take samples of that version and older ones take those that there are."""
        rules = self.state.settings
        known = sum(1 for sample, of in self.sample_version.items() if of <= version and sample not in self._taken)
        versions_left = version + math.ceil(rules.max_staleness) - self.state.version + 1
        known -= self.state.extra  # those that are aborted if need be
        return known >= (versions_left * rules.updates_per_version - bool(self.state.training)) * rules.batch

    def _put_back(self, sample: int) -> None:
        version = self.sample_version[sample]
        heapq.heappush(self._ready, (version, sample))
        self.state.ready[version] = self.state.ready.get(version, 0) + 1
        self.state.num_ready += 1
        self.state.ready_tokens += self._tokens[sample]

    def _leave_rotation(self, member: Member) -> None:
        if member.name in self.state.rotation:
            self.state.rotation.discard(member.name)
            self.state.behind.discard(member.name)
            self.state.kv_tokens -= member.kv_tokens


def _take(counts: dict[int, int], version: int, count: int) -> None:
    counts[version] -= count
    if not counts[version]:
        del counts[version]


def _learned(mean: float, observed: float) -> float:
    return mean + LEARNING_RATE * (observed - mean) if mean else observed
