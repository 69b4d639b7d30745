"""A discrete-event simulation of a described cluster under a policy: the host of the policy, on SimPy's clock.

Everything that takes time becomes one event of SimPy's queue: the end of a request, of a load, a switch, a verdict, an
update. The policy is called after each, with the state that `Book` keeps.
"""

from __future__ import annotations

import heapq
import random
import time
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import simpy
from simpy.events import Timeout

from weir.cluster.book import Book
from weir.cluster.costs.roofline import step_cost, train_priority, update_s
from weir.cluster.description import Description
from weir.cluster.due import SECONDS, uses
from weir.cluster.errors import ClusterInvalid
from weir.cluster.simulator.engine import Engine, Request
from weir.cluster.simulator.generation import Generation
from weir.cluster.simulator.result import Result, Totals
from weir.cluster.simulator.slots import Slots
from weir.cluster.state import Abort, Action, Assign, Event, Load, Member, Policy, Role, Settings, Start, Tag, Train
from weir.cluster.timeline import Activity, Overlap, Timeline
from weir.cluster.workloads.by_kind import arrivals, samples
from weir.cluster.workloads.episode import Episode, Episodes

ROUNDING = 1e-6  # of times
TRIES = 20
"""How often within the rule's seconds a policy is asked again, while what the rule makes due cannot begin."""


class Simulation:
    """One run of a policy on a cluster."""

    def __init__(
        self,
        description: Description,
        policy: Policy,
        *,
        keep_segments: bool = False,
        episodes: Episodes | None = None,
        online: Iterable[Episode] | None = None,
    ) -> None:
        self.description, self.policy = description, policy
        self.env = simpy.Environment()
        self.timeline = Timeline(keep_segments=keep_segments)
        self.episodes = episodes if episodes is not None else samples(description.workload)
        if online is None:
            online = arrivals(description.online) if description.online is not None else ()
        self.online = iter(online)
        members = described_members(description)
        self.engines = [
            Engine(
                index, member.name, step_cost(description.devices[member.kind], description.model, description.costs)
            )
            for index, member in enumerate(members)
        ]
        self.by_name = {engine.name: engine for engine in self.engines}
        rules = description.rules
        self.generation = Generation(
            self.engines, self.timeline, self._schedule_engine, keeps_serving=rules.serve_share > 0
        )
        self.book = Book(
            Settings(
                batch=rules.batch,
                max_staleness=rules.max_staleness,
                updates_per_version=rules.updates_per_version,
                train_members=rules.train_members,
                when=rules.when,
                least=rules.least,
                tokens=rules.tokens or 0.0,
                seconds=rules.seconds or 0.0,
                serve_share=rules.serve_share,
                oversample=rules.oversample,
                refill=rules.refill,
                stragglers=rules.stragglers,
            ),
            members,
        )
        self.totals = Totals()
        self.holds_s = array("d")
        self.serve_holds_s = array("d")  # of the requests that are no samples
        self.samples: dict[int, Episode] = {}
        self._slots = Slots(rules.sessions)
        self._requests: dict[int, list[Request]] = {}  # sessions that are not complete, by their samples
        self._contexts: dict[int, float] = {}  # tokens of those that are, by their samples
        self._spread = random.Random(description.workload.seed)
        self._serial = 0
        self._judges: list[float] = []
        self._updates_wanted = 0
        self._warmup = 0
        self._over: simpy.Event = self.env.event()
        for member in members:
            self.timeline.switch(member.name, Activity.NO_ROLE, 0.0)

    def run(self, *, updates: int = 0, warmup: int = 1, until_s: float | None = None) -> Result:
        """Run until so many updates are complete, or until a moment; the figures are of what follows the warm-up.

        Raises:
            ClusterInvalid: Neither updates nor a moment is given, or the policy ends with nothing left to happen.
        """
        if not updates and until_s is None:
            raise ClusterInvalid("a simulation needs a number of updates or a time until which it runs")
        self._updates_wanted, self._warmup = updates, min(warmup, max(updates - 1, 0))
        began = time.perf_counter()
        self._feed(Event.STARTED)
        self._tell_the_time(None)
        self._next_arrival()
        self.generation.flush(0.0)
        if until_s is not None:
            self.env.run(until=until_s)
        else:
            try:
                self.env.run(until=self._over)
            except RuntimeError as error:
                raise ClusterInvalid(
                    f"after {self.book.state.updates} updates nothing is left to happen: the policy cannot run on this "
                    f"cluster ({len(self.book.state.rotation)} members generate)"
                ) from error
        wall_s = time.perf_counter() - began
        self.timeline.close(self.env.now)
        self.totals.events += self.generation.num_admitted
        return Result.of(
            self.book,
            self.timeline,
            self.totals,
            self.generation,
            (self.holds_s, self.serve_holds_s),
            self.env.now,
            wall_s,
        )

    def _tell_the_time(self, _: Any) -> None:
        """Ask the policy whenever so many seconds have passed since an update began."""
        state = self.book.state
        if uses(state.settings, SECONDS):
            self._feed(Event.TIME)
            self.generation.flush(self.env.now)
            left_s = state.settings.seconds - state.since_update_s
            pause_s = state.settings.seconds / TRIES
            self._after(left_s if left_s > ROUNDING * pause_s else pause_s, self._tell_the_time)

    def _after(self, delay_s: float, callback: Any, value: Any = None) -> None:
        event = Timeout(self.env, delay_s, value)
        assert event.callbacks is not None
        event.callbacks.append(callback)

    def _feed(self, event: Event) -> None:
        self.book.happened(event, self.env.now)
        for action in self.policy(self.book.state, event):
            self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case Start(count):
                self._start(count)
            case Assign(names, role):
                self._assign(names, role)
            case Load(names):
                self._load(names)
            case Train(names):
                self._train(names)
            case Abort(count):
                self._abort(count)
            case _:
                self.book.state.in_flight_share = action.in_flight_share

    def _start(self, count: int) -> None:
        now = self.env.now
        for sample in self.book.start(count):
            episode = next(self.episodes)
            self.samples[sample] = episode
            self._requests[sample], self._contexts[sample] = [], 0.0
            for session in (episode, *episode.others):
                request = Request(self._serial, sample, session, now)
                self._serial += 1
                self._requests[sample].append(request)
                if self._slots.enter(request):
                    self._begin(request)

    def _begin(self, request: Request) -> None:
        pause_s = request.episode.thinks_s[0] + self.description.costs.call_s
        if pause_s > 0:
            self.generation.num_thinking += 1
            self._after(pause_s, self._thought, request)
        else:
            self._submit(request, self.env.now)

    def _abort(self, count: int) -> None:
        for sample in self.book.abort(count):
            dropped = self._requests.pop(sample, [])
            for request in dropped:
                self.generation.drop(request, self.env.now)
            for request in self._slots.leave(dropped):
                self._begin(request)
            self._contexts.pop(sample, None)
            self.totals.wasted += self.samples.pop(sample).generated
            self.totals.aborted += 1
        self._feed(Event.SAMPLES_ABORTED)

    def _submit(self, request: Request, now: float) -> None:
        self._serial += 1
        self.totals.events += 1
        request.context += request.episode.inputs[request.turn]
        request.remaining = request.episode.outputs[request.turn]
        request.held_s = 0.0
        self.generation.submit(request, now)

    def _schedule_engine(self, engine: Engine, at_s: float) -> None:
        self._after(max(at_s - self.env.now, 0.0), self._engine_event, (engine, engine.generation))

    def _engine_event(self, event: Any) -> None:
        engine, generation = event.value
        if engine.generation != generation:
            return
        now = self.env.now
        ended, exhausted = self.generation.arrive(engine, now)
        for request in ended:
            self._turn_ended(request, now)
        if exhausted:
            self._feed(Event.KV_EXHAUSTED)
        self.generation.flush(now)

    def _turn_ended(self, request: Request, now: float) -> None:
        if request.sample is not None and request.sample not in self._requests:
            return  # it was aborted at this very moment
        self.totals.events += 1
        self.holds_s.append(request.held_s)
        if request.sample is None:
            self.serve_holds_s.append(request.held_s)
        self.totals.generated += request.episode.outputs[request.turn]
        request.turn += 1
        if request.turn < len(request.episode.outputs):
            self.generation.num_thinking += 1
            pause_s = request.episode.thinks_s[request.turn] + self.description.costs.call_s
            self._after(pause_s, self._thought, request)
        elif request.sample is not None and request.episode.after_s > 0:
            self.generation.num_thinking += 1
            self._after(request.episode.after_s, self._ended_later, request)
        elif request.sample is not None:
            self._session_ended(request, request.sample)

    def _ended_later(self, event: Any) -> None:
        request = event.value
        self.generation.num_thinking -= 1
        if request.sample in self._requests:  # else it was aborted
            self._session_ended(request, request.sample)
        self.generation.flush(self.env.now)

    def _session_ended(self, request: Request, sample: int) -> None:
        now = self.env.now
        self._requests[sample].remove(request)
        for other in self._slots.leave([request]):
            self._begin(other)
        self._contexts[sample] += request.context
        if not self._requests[sample]:
            del self._requests[sample]
            self.book.generated(sample, seconds=now - request.started_s, kv_tokens=self._contexts.pop(sample))
            self._judge(sample, now)

    def _thought(self, event: Any) -> None:
        self.generation.num_thinking -= 1
        if event.value.sample is not None and event.value.sample not in self._requests:
            return  # it was aborted
        self._submit(event.value, self.env.now)
        self.generation.flush(self.env.now)

    def _judge(self, sample: int, now: float) -> None:
        costs = self.description.costs
        if not costs.judge_s or not costs.judge_overlaps:
            self._is_judged(sample)
            return
        ends = now + costs.judge_s
        if costs.judges:
            if len(self._judges) >= costs.judges:
                ends = max(now, heapq.heappop(self._judges)) + costs.judge_s
            heapq.heappush(self._judges, ends)
        self.timeline.beside(None, Overlap.JUDGING, ends - costs.judge_s, ends)
        self._after(ends - now, self._judged, sample)
        self._feed(Event.SAMPLE_GENERATED)

    def _judged(self, event: Any) -> None:
        self._is_judged(event.value)
        self.generation.flush(self.env.now)

    def _is_judged(self, sample: int) -> None:
        self.totals.events += 1
        share = self.description.rules.no_spread
        if sample not in self.samples:
            return  # it was aborted
        if share and self._spread.random() < share and self.book.refill(sample):
            self.totals.wasted += self.samples.pop(sample).generated
            self._feed(Event.SAMPLE_GENERATED)
            return
        self.book.judged(sample, self.env.now, tokens=self.samples[sample].generated)
        self._feed(Event.SAMPLE_READY)

    def _assign(self, names: Sequence[str], role: Role) -> None:
        now, costs, members = self.env.now, self.description.costs, self.book.state.members
        before = {name: members[name].role for name in names}
        self.book.assign(names, role)
        for name in names:
            first = before[name] is Role.NONE
            self.totals.switches += not first
            seconds = 0.0 if first else costs.to_train_s if role is Role.TRAIN else costs.to_rollout_s
            ahead = min(costs.state_s, seconds) if role is Role.TRAIN and costs.state_overlaps else 0.0
            if ahead and before[name] is Role.ROLLOUT:
                self.timeline.beside(name, Overlap.STATE, now, now + ahead)
                self._after(ahead, self._state_is_there, (name, seconds - ahead))
            else:
                self._leave(name, before[name], seconds)

    def _state_is_there(self, event: Any) -> None:
        name, seconds = event.value
        self.totals.events += 1
        self._leave(name, Role.ROLLOUT, seconds)
        self.generation.flush(self.env.now)

    def _leave(self, name: str, before: Role, seconds: float) -> None:
        """The member stops what it does, and has its new role after so long."""
        if before is Role.ROLLOUT:
            self.generation.leave(self.by_name[name], self.env.now)
        self.timeline.switch(name, Activity.SWITCH, self.env.now)
        self._after(seconds, self._settled, (name, seconds))

    def _settled(self, event: Any) -> None:
        name, seconds = event.value
        now, member = self.env.now, self.book.state.members[name]
        self.totals.events += 1
        self.book.settled(name, seconds)
        if member.role is Role.ROLLOUT:
            self.generation.enter(self.by_name[name], now)
        else:
            self.timeline.switch(name, self._waits_for(), now)
        self._feed(Event.MEMBER_SETTLED)
        self.generation.flush(now)

    def _load(self, names: Sequence[str]) -> None:
        now, costs = self.env.now, self.description.costs
        self.book.load(names)
        for name in names:
            if costs.weights_overlap and costs.spread_s:
                self.timeline.beside(name, Overlap.WEIGHTS, now, now + costs.spread_s)
                self._after(costs.spread_s, self._weights_are_there, name)
            else:
                self._hold(name, costs.spread_s + costs.load_s)

    def _weights_are_there(self, event: Any) -> None:
        self.totals.events += 1
        self._hold(event.value, self.description.costs.load_s)
        self.generation.flush(self.env.now)

    def _hold(self, name: str, seconds: float) -> None:
        """The member holds its calls for so long, and has new weights then."""
        self.generation.begin_load(self.by_name[name], seconds, self.env.now)
        self._after(seconds, self._loaded, name)

    def _loaded(self, event: Any) -> None:
        self.totals.events += 1
        self.book.loaded(event.value)
        self.generation.end_load(self.by_name[event.value], self.env.now)
        self._feed(Event.WEIGHTS_LOADED)
        self.generation.flush(self.env.now)

    def _waits_for(self) -> Activity:
        state = self.book.state
        if state.num_ready >= state.settings.batch:
            return Activity.AWAITS_MEMBERS
        return Activity.AWAITS_JUDGE if state.judging and not state.num_running else Activity.AWAITS_SAMPLES

    def _train(self, names: Sequence[str]) -> None:
        now, costs, state = self.env.now, self.description.costs, self.book.state
        taken = self.book.train(names)
        tokens = sum(self.samples[sample].tokens for sample in taken)
        seconds = update_s(self.description, [state.members[name].kind for name in names], tokens)
        judging = 0.0
        if costs.judge_s and not costs.judge_overlaps:
            judging = costs.judge_s * (-(-len(taken) // costs.judges) if costs.judges else 1)
        for name in names:
            self.timeline.switch(name, Activity.AWAITS_JUDGE if judging else Activity.TRAIN, now)
        if judging:
            self._after(judging, self._judged_before, names)
        self.totals.waited_s += now - self.totals.last_update_s
        self.totals.update_s += seconds
        self._after(judging + seconds, self._trained, names)

    def _judged_before(self, event: Any) -> None:
        for name in event.value:
            self.timeline.switch(name, Activity.TRAIN, self.env.now)

    def _trained(self, event: Any) -> None:
        now = self.env.now
        self.totals.events += 1
        self.totals.last_update_s = now
        for sample in self.book.trained():
            self.totals.trained += self.samples.pop(sample).generated
        self.totals.updates += 1
        for name in event.value:
            self.timeline.switch(name, Activity.AWAITS_SAMPLES, now)
        if self.book.state.updates == self._warmup:
            self.timeline.restart(now)
            self.totals.restart(now)
            self.generation.num_moved = self.generation.num_evicted = 0
            self.holds_s, self.serve_holds_s = array("d"), array("d")
        if self._updates_wanted and self.book.state.updates >= self._updates_wanted:
            self._over.succeed()
            return
        self._feed(Event.TRAINED)
        self.generation.flush(now)

    def _next_arrival(self) -> None:
        episode = next(self.online, None)
        if episode is not None:
            self._after(max(episode.arrival_s - self.env.now, 0.0), self._arrived, episode)

    def _arrived(self, event: Any) -> None:
        self._submit(Request(self._serial, None, event.value, self.env.now), self.env.now)
        self.generation.flush(self.env.now)
        self._next_arrival()


def described_members(description: Description) -> list[Member]:
    """The members of a description, by group and number; priorities by roofline where none is given."""
    members = []
    for number, group in enumerate(description.members):
        device = description.devices[group.kind]
        priority = train_priority(device) if group.train_priority is None else group.train_priority
        kv_tokens = (
            step_cost(device, description.model, description.costs).kv_tokens if Tag.ROLLOUT in group.tags else 0
        )
        members += [
            Member(
                name=f"{group.kind}-{number}-{index}",
                tags=frozenset(group.tags),
                kind=group.kind,
                train_priority=priority,
                kv_tokens=kv_tokens,
            )
            for index in range(group.count)
        ]
    return members
