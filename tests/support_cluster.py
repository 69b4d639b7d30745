"""A host of policies in which anything may happen next: the order of events is a list of numbers that a test draws."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

from weir.cluster.book import Book
from weir.cluster.state import BOTH, Abort, Assign, Event, Load, Member, Policy, Role, Settings, Start, Tag, Train, Tune

TAGS = (BOTH, frozenset({Tag.ROLLOUT}), frozenset({Tag.TRAIN}))
Pending = tuple[str, str | int]


class AnyOrderHost:
    """Keeps what is under way, and lets the caller say which of it ends, or who dies, next."""

    def __init__(self, policy: Policy, settings: Settings, members: Iterable[Member]) -> None:
        self.policy, self.book, self.now_s = policy, Book(settings, members), 0.0
        self.pending: list[Pending] = []
        self.trained: list[int] = []
        self.aborted: list[int] = []
        self.lost: list[Member] = []
        self.feed(Event.STARTED)

    def feed(self, event: Event) -> None:
        """One decision; it must be the same twice, and change nothing."""
        self.book.happened(event, self.now_s)
        before = copy.deepcopy(self.book.state)
        actions = list(self.policy(self.book.state, event))
        assert list(self.policy(self.book.state, event)) == actions
        assert self.book.state == before
        for action in actions:
            self._do(action)

    def _do(self, action: Start | Assign | Load | Train | Abort | Tune) -> None:
        match action:
            case Start(count):
                self.pending += [("generated", sample) for sample in self.book.start(count)]
            case Assign(names, role):
                self._check_serving(names, alone=False)
                self.book.assign(names, role)
                self.pending += [("settled", name) for name in names]
            case Load(names):
                self._check_serving(names, alone=True)
                self.book.load(names)
                self.pending += [("loaded", name) for name in names]
            case Train(names):
                self.book.train(names)
                self.pending.append(("trained", ""))
            case Abort(count):
                aborted = self.book.abort(count)
                assert len(aborted) == count
                self.aborted += aborted
                self.pending = [one for one in self.pending if one[1] not in aborted]
                self.feed(Event.SAMPLES_ABORTED)
            case Tune(share):
                self.book.state.in_flight_share = share

    def _check_serving(self, names: Iterable[str], *, alone: bool) -> None:
        """Calls with the tag `serve` keep their members; one that is `alone` may load, with its calls held so long."""
        state = self.book.state
        before = state.serving
        left = len(before - {*names})
        if state.settings.serve_share and left < len(before):
            able = sum(Tag.ROLLOUT in one.tags for one in state.members.values())
            least = max(1, min(math.ceil(state.settings.serve_share * able), able - 1))
            only = alone and len(before) - left == 1 and not state.num_loading
            assert left >= least or only, f"{left} of {able} members take calls: {names}"

    def possible(self) -> list[Pending]:
        """What can end now: nothing is generated without a member that generates."""
        return [one for one in self.pending if one[0] != "generated" or self.book.state.rotation]

    def end(self, one: Pending) -> None:
        """What was under way ends."""
        self.now_s += 1.0
        self.pending.remove(one)
        what, which = one
        if what == "generated":
            assert isinstance(which, int)
            self.book.generated(which, seconds=3.0, kv_tokens=10.0)
            self.pending.append(("judged", which))
            self.feed(Event.SAMPLE_GENERATED)
        elif what == "judged":
            assert isinstance(which, int)
            self.book.judged(which, self.now_s, tokens=10.0 + which % 3)
            self.feed(Event.SAMPLE_READY)
        elif what == "settled":
            self.book.settled(str(which), 2.0)
            self.feed(Event.MEMBER_SETTLED)
        elif what == "loaded":
            self.book.loaded(str(which))
            self.feed(Event.WEIGHTS_LOADED)
        else:
            self.trained += self.book.trained()
            self.feed(Event.TRAINED)

    def lose(self, name: str) -> None:
        """A member dies; an update that it took part in fails."""
        self.lost.append(self.book.state.members[name])
        failed = self.book.lose(name)
        self.pending = [one for one in self.pending if one[1] != name]
        if failed:
            self.pending.remove(("trained", ""))
            self.book.training_failed()
            self.feed(Event.TRAINING_FAILED)
        self.feed(Event.MEMBER_LOST)

    def come_back(self) -> None:
        """The member that was lost first joins again."""
        self.book.join(self.lost.pop(0))
        self.feed(Event.MEMBER_JOINED)

    def anything(self, number: int) -> None:
        """One of all that may happen, chosen by the number: mostly something ends, sometimes a member dies or joins."""
        chance, which = number % 16, number // 16
        members, possible = sorted(self.book.state.members), self.possible()
        if chance == 0 and len(members) > 1:
            self.lose(members[which % len(members)])
        elif chance == 1 and self.lost:
            self.come_back()
        elif chance == 2:
            self.feed(Event.KV_EXHAUSTED)
        elif chance == 3:
            self.now_s += which % 7
            self.feed(Event.TIME)
        elif possible:
            self.end(possible[which % len(possible)])

    def run_fairly(self, updates: int) -> None:
        """All members live and everything ends in its turn, until so many more updates are complete.

        Fails where nothing is left to happen before that, or too much happened.
        """
        while self.lost:
            self.come_back()
        wanted = self.book.state.version + updates
        for _ in range(200 * updates * (3 * self.book.state.settings.batch + len(self.book.state.members))):
            if self.book.state.version >= wanted:
                return
            possible = self.possible()
            assert possible, f"nothing can happen any more: {self.book.state}"
            self.end(possible[0])
        raise AssertionError(f"no {updates} updates: {self.book.state}")


def member(name: str, tags: frozenset[Tag] = BOTH, priority: float = 0.0, role: Role = Role.NONE) -> Member:
    """A member with room for a few samples of ten tokens."""
    return Member(name=name, tags=tags, train_priority=priority, kv_tokens=40.0, role=role)
