"""The host of a policy over real members: it keeps the book, calls the policy, and does in the world what it says.

All methods run in one event loop. Invariants: the policy is the one that is simulated, and sees the same state; a
sample is a group of sessions; a group is started only where a policy started a sample, so none can become too old; what
a member that was lost meanwhile still does changes nothing. The book holds nothing that cannot be found again in the
catalog: groups that are ready there and unknown here are adopted.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from weir.cluster.book import Book
from weir.cluster.due import SECONDS, uses
from weir.cluster.errors import RoundRefused
from weir.cluster.live.world import GroupCalls, MemberFailed, Phase, RoundEnd, World
from weir.cluster.state import Abort, Assign, Event, Load, Member, Policy, Role, Settings, Start, Train
from weir.cluster.timeline import BESIDE, Activity, Overlap, Timeline

LEAST_PAUSE_S = 0.01
LEFT_OUT = "no round takes it as it is"
LOOK = Event.STARTED  # for what no event stands for: a policy decides by the state


class Host:
    """One policy over one cluster. `run` ends once so many rounds are trained, or when its task is cancelled."""

    def __init__(self, policy: Policy, settings: Settings, world: World, *, weights: int, retry_s: float) -> None:
        """`weights` is the newest version; it is the state's version too."""
        self.book = Book(settings, ())
        self.book.resume(weights)
        self.weights, self.rounds = weights, 0
        self.timeline = Timeline(keep_segments=False)
        self._policy, self._world, self._retry_s = policy, world, retry_s
        self._allowed: deque[int] = deque()  # samples whose group has not started
        self._revoked = 0  # permits of samples that were aborted before their group started
        self._sample_of: dict[str, int] = {}  # of groups that no round has consumed
        self._started_s: dict[int, float] = {}
        self._ended: set[str] = set()  # groups that wait for their rewards
        self._foreign: dict[str, int] = {}  # ready groups of others that wait → versions that they are behind
        self._foreign_calls: dict[str, GroupCalls] = {}
        self._ignored: set[str] = set()  # groups that are consumed, left out, or too old
        self._told: frozenset[str] = frozenset()  # groups that the round which runs was told to train on
        self._moves: dict[str, asyncio.Task[None]] = {}
        self._others: set[asyncio.Task[None]] = set()
        self._seconds: dict[str, dict[Activity, float]] = {}  # of each member at the begin of its phase
        self._beside: dict[str, dict[Overlap, float]] = {}  # of each member's phase
        self._wanted: int | None = None
        self._runs, self._over = False, asyncio.Event()
        self._failure: BaseException | None = None

    async def run(self, rounds: int | None = None) -> None:
        """Decide until so many rounds are trained. Raises what a policy or the world raised unforeseen."""
        self._wanted, self._runs = rounds, True
        self._feed(Event.STARTED)
        if uses(self.book.state.settings, SECONDS):
            self._spawn(self._tell_the_time())
        try:
            await self._over.wait()
        finally:
            tasks = [*self._moves.values(), *self._others]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    # What happens to members

    def join(self, member: Member) -> None:
        """A member is there, or there again; before `run` nothing follows from it yet."""
        self.book.join(member)
        self._begin(member.name, Phase.WAITS, Activity.NO_ROLE, Event.MEMBER_JOINED)
        self._feed(Event.MEMBER_JOINED)

    def lose(self, name: str, why: str) -> None:
        """A member does not answer any more. A round that trains on its device continues: it is another process."""
        if name not in self.book.state.members:
            return
        if (move := self._moves.pop(name, None)) is not None:
            move.cancel()
        self.book.lose(name)
        self._world.say(f"member {name} is lost: {why}")
        self._begin(name, Phase.LOST, Activity.NO_ROLE, Event.MEMBER_LOST, note=why)
        self._feed(Event.MEMBER_LOST)

    def kv_exhausted(self, name: str) -> None:
        """Calls wait at a member of the rotation for room in its KV cache."""
        self._world.say(f"member {name} has calls that wait for room in its KV cache")
        self._feed(Event.KV_EXHAUSTED)

    def observe(self, name: str, *, busy: bool) -> None:
        """Whether a member of the rotation has work at this moment."""
        if name in self.book.state.rotation and not self.book.state.members[name].loading:
            self.timeline.switch(name, Activity.GENERATE if busy else self._without_calls(), time.monotonic())

    def _without_calls(self) -> Activity:
        return Activity.AGENTS_THINK if self.book.state.num_running else Activity.NO_SAMPLES

    def beside(self, names: Sequence[str], overlap: Overlap, seconds: float) -> None:
        """Something went on beside the work of members until now; their phases count it apart from that.

        Without names it was beside all of them, and is in no phase.
        """
        now = time.monotonic()
        if not names:
            self.timeline.beside(None, overlap, now - seconds, now)
        for name in names:
            self.timeline.beside(name, overlap, now - seconds, now)
            of_phase = self._beside.setdefault(name, {})
            of_phase[overlap] = of_phase.get(overlap, 0.0) + seconds

    def training_step(self, *, judging: bool) -> None:
        """The round that trains has begun, or ended, to wait for its judge."""
        for name in self.book.state.training:
            self.timeline.switch(name, Activity.AWAITS_JUDGE if judging else Activity.TRAIN, time.monotonic())

    # What happens to groups

    def group_started(self, group: str) -> None:
        """Agents started a group that was allowed."""
        if not self._allowed:  # by the permit of a sample that was aborted
            self._revoked -= 1
            self._ignored.add(group)
            self._world.abort([group])
            return
        sample = self._allowed.popleft()
        self._sample_of[group] = sample
        self._started_s[sample] = time.monotonic()

    def group_ended(self, group: str, *, complete: bool) -> None:
        """All sessions of a group have ended; one that is not complete in the catalog can never be trained on."""
        sample = self._sample_of.get(group)
        if sample is None or sample not in self._started_s:
            return
        seconds = time.monotonic() - self._started_s.pop(sample)
        if not complete:
            self._abandon(group, "its sessions could not be registered or finished")
            return
        self.book.generated(sample, seconds=seconds)
        self._ended.add(group)
        self._feed(Event.SAMPLE_GENERATED)

    def group_ready(self, group: str, found: GroupCalls) -> None:
        """A group can be claimed; `found` is what is known of its calls."""
        if group in self._ended:
            self._ended.discard(group)
            self._judged(self._sample_of[group], found)
        elif not self.is_foreign(group):
            return
        else:
            self._foreign[group] = 0 if found.version is None else self.weights - found.version
            self._foreign_calls[group] = found
            self._adopt_waiting()
        self._feed(Event.SAMPLE_READY)

    def group_lost(self, group: str, why: str) -> None:
        """A group can never be trained on as it is; another one is started for it.

        One that a round was told stays: the round says whether it takes it.
        """
        if group in self._sample_of and group not in self._told:
            self._abandon(group, why)

    def group_without_spread(self, group: str) -> bool:
        """Its rewards are all alike: another one is started for it, so often under a version. Returns whether it is."""
        if not self.awaits_round(group) or not self.book.refill(self._sample_of[group]):
            return False
        self._world.say(f"group {group} is replaced by another one: its rewards are all alike")
        self._forget(group)
        self._adopt_waiting()
        self._feed(LOOK)
        return True

    def awaits_round(self, group: str) -> bool:
        """Whether the group has a place in a round, and none was told it."""
        return group in self._sample_of and group not in self._told

    def agents_died(self) -> None:
        """Groups that ran or were allowed are gone; those that ended are not."""
        running = [group for group, sample in self._sample_of.items() if sample in self._started_s]
        for sample in [*self._allowed, *(self._sample_of.pop(group) for group in running)]:
            self._started_s.pop(sample, None)
            self.book.abandon(sample)
        self._allowed.clear()
        self._revoked = 0
        self._feed(LOOK)

    def is_known(self, group: str) -> bool:
        """Whether nothing new can be learned from this group being ready."""
        return group not in self._ended and not self.is_foreign(group)

    def is_foreign(self, group: str) -> bool:
        """Whether the group was not started here, and nothing is known of it yet."""
        return group not in self._sample_of and group not in self._foreign and group not in self._ignored

    def end(self) -> None:
        """Complete the phases of all members: nobody decides any more."""
        for name in self.book.state.members:
            self._begin(name, Phase.WAITS, Activity.NO_ROLE, LOOK)

    def _adopt_waiting(self) -> None:
        """Groups of others train as soon as there is a place for them; agents' own groups wait meanwhile."""
        for group, age in list(self._foreign.items()):
            if age > self.book.state.settings.max_staleness:
                del self._foreign[group], self._foreign_calls[group]
                self._ignored.add(group)
                self._world.say(f"group {group} is left out: it is {age} versions behind")
            elif (sample := self.book.adopt(self.book.state.version - age)) is not None:
                del self._foreign[group]
                self._sample_of[group] = sample
                self._judged(sample, self._foreign_calls.pop(group))

    def _judged(self, sample: int, found: GroupCalls) -> None:
        self.book.judged(sample, time.monotonic(), tokens=found.tokens, kv_tokens=found.kv_tokens)

    def _abandon(self, group: str, why: str) -> None:
        self._drop(group, why)
        self._adopt_waiting()
        self._feed(LOOK)

    def _drop(self, group: str, why: str) -> None:
        self._world.say(f"group {group} will not be trained on: {why}")
        sample = self._sample_of.pop(group)
        self._started_s.pop(sample, None)
        self._ended.discard(group)
        self.book.abandon(sample)

    def _leave_out(self, groups: Iterable[str], why: str) -> None:
        """Drop groups for good. The policy is not asked in between: it would train on those that are still to go."""
        for group in groups:
            self._ignored.add(group)
            if group in self._sample_of:
                self._drop(group, why)

    # Decisions

    def _feed(self, event: Event) -> None:
        if not self._runs or self._over.is_set() or (self._wanted is not None and self.rounds >= self._wanted):
            return
        self.book.happened(event, time.monotonic())
        try:
            for action in self._policy(self.book.state, event):
                match action:
                    case Start(count):
                        self._allowed.extend(self.book.start(count))
                        used = min(count, self._revoked)
                        self._revoked -= used
                        self._world.allow(count - used)
                    case Abort(count):
                        self._abort(count)
                    case Assign(names, role):
                        self._assign(names, role, event)
                    case Load(names):
                        self._load(names, event)
                    case Train(names):
                        if self.book.state.update_keeps_bound():  # groups of others are beyond what some policies count
                            self._train(names, event)
                    case _:
                        self.book.state.in_flight_share = action.in_flight_share
        except Exception as error:  # the edge: whatever it is, nobody decides any more
            self._fail(error)

    def _abort(self, count: int) -> None:
        aborted = {*self.book.abort(count)}
        groups = [group for group, sample in self._sample_of.items() if sample in aborted]
        for group in groups:
            self._forget(group)
        waiting = [sample for sample in self._allowed if sample in aborted]
        self._revoked += len(waiting)
        self._allowed = deque(sample for sample in self._allowed if sample not in aborted)
        self._world.say(f"{len(aborted)} groups are aborted: enough others are ready")
        if groups:
            self._world.abort(groups)
        self._feed(Event.SAMPLES_ABORTED)

    def _forget(self, group: str) -> None:
        self._started_s.pop(self._sample_of.pop(group), None)
        self._ended.discard(group)
        self._ignored.add(group)

    async def _tell_the_time(self) -> None:
        """Ask the policy whenever so many seconds have passed since an update began."""
        state = self.book.state
        while True:
            left_s = state.settings.seconds - state.since_update_s
            await asyncio.sleep(left_s if left_s > 0 else max(self._retry_s, LEAST_PAUSE_S))
            self._feed(Event.TIME)

    def _later(self, event: Event) -> None:
        """Tell the policy after a pause, since what it would say now has just failed."""

        async def tell() -> None:
            await asyncio.sleep(self._retry_s)
            self._feed(event)

        self._spawn(tell())

    def _assign(self, names: Sequence[str], role: Role, event: Event) -> None:
        members = self.book.state.members
        before = {name: members[name].role for name in names}
        self.book.assign(names, role)
        for name in names:
            self._begin(name, Phase.SWITCH, Activity.SWITCH, event)
            self._moves[name] = asyncio.create_task(self._guarded(self._move(name, role, before[name])))

    async def _move(self, name: str, role: Role, before: Role) -> None:
        started = time.monotonic()
        try:
            await (self._world.generate(name) if role is Role.ROLLOUT else self._world.leave(name))
        except MemberFailed as error:
            self._moves.pop(name)
            self.lose(name, str(error))
            return
        self._moves.pop(name)
        started += self._beside.get(name, {}).get(Overlap.STATE, 0.0)  # it took calls meanwhile
        self.book.settled(name, 0.0 if before is Role.NONE else time.monotonic() - started)
        if role is Role.ROLLOUT:
            self._begin(name, Phase.ROLLOUT, self._without_calls(), Event.MEMBER_SETTLED)  # none came to it yet
        else:
            self._begin(name, Phase.WAITS, self._waits_for(), Event.MEMBER_SETTLED)
        self._feed(Event.MEMBER_SETTLED)

    def _load(self, names: Sequence[str], event: Event) -> None:
        self.book.load(names)
        loading = [self.book.state.members[name] for name in names]
        for name in names:
            self._begin(name, Phase.LOAD, Activity.LOAD, event)
        self._spawn(self._loaded(loading))

    async def _loaded(self, loading: Sequence[Member]) -> None:
        failed = await self._world.load([member.name for member in loading])
        of_all = len(failed) == len(loading)  # then they go on with the weights that they have
        for member in loading:
            name = member.name
            if self.book.state.members.get(name) is not member:
                continue  # it was lost meanwhile
            if name in failed and not of_all:
                self.book.load_failed(name)
                self.lose(name, failed[name])
                continue
            if name in failed:
                self.book.load_failed(name)
            else:
                self.book.loaded(name)
            self._begin(name, Phase.ROLLOUT, Activity.GENERATE, Event.WEIGHTS_LOADED)
        if of_all and failed:
            self._world.say(f"no engine loaded the newest weights: {next(iter(failed.values()))}")
            self._later(Event.WEIGHTS_LOADED)
        else:
            self._feed(Event.WEIGHTS_LOADED)

    def _train(self, names: Sequence[str], event: Event) -> None:
        samples = set(self.book.train(names))
        groups = [group for group, sample in self._sample_of.items() if sample in samples]
        self._told = frozenset(groups)
        for name in names:
            self._begin(name, Phase.TRAIN, Activity.TRAIN, event)
        self._spawn(self._trained(names, groups))

    async def _trained(self, names: Sequence[str], groups: Sequence[str]) -> None:
        end = await self._world.train(names, groups)
        if end.is_fatal:
            raise RoundRefused(end.failure)
        self._told = frozenset()
        if end.version is None:
            self.book.training_failed()
            self._rest(names, Event.TRAINING_FAILED)
            if end.left_out:
                self._leave_out(end.left_out, LEFT_OUT)
                self._adopt_waiting()
                self._feed(LOOK)
            if end.failure is not None:
                self._world.say(f"the round did not end: {end.failure}")
            self._later(Event.TRAINING_FAILED)
            return
        self.consumed(end)
        self._rest(names, Event.TRAINED)
        if self._wanted is not None and self.rounds >= self._wanted:
            self._over.set()
        self._feed(Event.TRAINED)

    def consumed(self, end: RoundEnd) -> None:
        """A round has made a version of these groups, whichever it was told."""
        assert end.version is not None
        taken = []
        for group in end.groups:
            if group in self._ended:
                self._ended.discard(group)
                self._judged(self._sample_of[group], GroupCalls())
            self._foreign.pop(group, None)
            self._foreign_calls.pop(group, None)
            if group in self._sample_of:
                taken.append(self._sample_of.pop(group))
        self._ignored.update(end.groups)  # a list of ready groups may be older than the claim
        self.book.took(taken)
        self.book.trained()
        self._leave_out(end.left_out, LEFT_OUT)
        self._leave_out(self._too_old(), "the round took others, and no later one may take it")
        self._foreign = {group: age + end.version - self.weights for group, age in self._foreign.items()}
        self.weights = end.version
        self.rounds += 1
        self._adopt_waiting()

    def _too_old(self) -> list[str]:
        """Groups that have ended and are older than any round may take from now on."""
        versions, limit = self.book.sample_version, self.book.state.oldest_allowed
        return [of for of, one in self._sample_of.items() if versions[one] < limit and one not in self._started_s]

    def _rest(self, names: Sequence[str], event: Event) -> None:
        for name in names:
            if name in self.book.state.members:
                self._begin(name, Phase.WAITS, self._waits_for(), event)

    def _waits_for(self) -> Activity:
        state = self.book.state
        if state.num_ready >= state.settings.batch:
            return Activity.AWAITS_MEMBERS
        return Activity.AWAITS_JUDGE if state.judging and not state.num_running else Activity.AWAITS_SAMPLES

    # Tasks and times

    def _begin(self, name: str, phase: Phase, activity: Activity, event: Event, note: str | None = None) -> None:
        self.timeline.switch(name, activity, time.monotonic())
        self.timeline.close(time.monotonic())
        sums = dict(self.timeline.seconds[name])
        before = self._seconds.get(name, {})
        spent = {str(what): round(s - before.get(what, 0.0), 3) for what, s in sums.items() if s > before.get(what, 0)}
        self._seconds[name] = sums
        spent |= {f"{what}{BESIDE}": round(s, 3) for what, s in self._beside.pop(name, {}).items() if s}
        self._world.began(name, phase, event.value, spent, note)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(work))
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # the edge of a task: it ends the run
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._over.set()
