"""An engine that decodes a batch: one token for each running request a step, at the speed of its batch and context.

A step takes t0 + g n seconds after n steps, because the context grows by one token a request; so times of any number of
steps are closed forms, and an engine needs one event for each request that ends, not one for each step.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

from weir.cluster.costs.roofline import StepCost
from weir.cluster.simulator.prefix_cache import PrefixCache
from weir.cluster.workloads.episode import Episode

ROOM = 0.02
"""Share of the KV cache that an admission leaves free, so that running requests can grow."""


@dataclass(slots=True, eq=False)
class Request:
    """One episode on its way: the turn that is generated, and where its context is cached."""

    serial: int
    sample: int | None
    episode: Episode
    started_s: float
    turn: int = 0
    context: float = 0.0
    remaining: float = 0.0
    waits_since_s: float = 0.0
    held_s: float = 0.0
    load_mark_s: float = 0.0
    runs_on: int = -1
    cached_on: int = -1
    cached_epoch: int = -1
    cached: float = 0.0


@dataclass(slots=True, eq=False)
class Engine:
    """The state of one member that generates, valid at `last_s`.

    `clock` counts its steps; `running` is a heap of (clock at which it ends, serial, request). `epoch` changes with its
    weights and its role: what was cached before is worthless.
    """

    index: int
    name: str
    cost: StepCost
    clock: float = 0.0
    last_s: float = 0.0
    stalled_until_s: float = 0.0
    context: float = 0.0
    loading_s: float = 0.0
    loads_until_s: float = 0.0
    epoch: int = 0
    generation: int = 0
    target: float = 0.0
    running: list[tuple[float, int, Request]] = field(default_factory=list)
    prefixes: PrefixCache = field(default_factory=PrefixCache)

    def advance(self, now_s: float) -> None:
        """Bring the steps up to this moment."""
        batch = len(self.running)
        if batch:
            seconds = now_s - (self.last_s if self.last_s > self.stalled_until_s else self.stalled_until_s)
            if seconds > 0:
                first, growth = self._step_s(batch), batch * self.cost.context_s
                steps = 2 * seconds / (first + math.sqrt(first * first + 2 * growth * seconds))
                self.clock += steps
                self.context += batch * steps
        self.last_s = now_s

    def has_room(self, request: Request) -> bool:
        """Whether the request can be admitted now; an empty engine admits any."""
        batch = len(self.running)
        if not batch:
            return True
        room = self.cost.kv_tokens * (1 - ROOM) - self.context
        return batch < self.cost.max_running and request.context <= room

    def admit(self, request: Request, now_s: float) -> None:
        """Prefill what is not cached here, which stalls the others, then decode. The engine is at `now_s`."""
        cached = request.cached if (request.cached_on, request.cached_epoch) == (self.index, self.epoch) else 0.0
        if blocks := request.episode.prefix:
            room = self.cost.kv_tokens - self.context
            cached = max(cached, self.prefixes.admit(blocks, request.episode.inputs[0], self.epoch, room))
        self.stall(now_s, (request.context - cached) * self.cost.prefill_s)
        request.held_s += now_s - request.waits_since_s + max(self.loads_until_s - now_s, 0.0)
        request.load_mark_s = self.loading_s
        request.runs_on = self.index
        self.context += request.context
        heapq.heappush(self.running, (self.clock + request.remaining, request.serial, request))

    def stall(self, now_s: float, seconds: float) -> None:
        """No step for so long."""
        self.stalled_until_s = max(now_s, self.stalled_until_s) + seconds

    def next_event_s(self, now_s: float) -> float:
        """When the next request ends or the KV cache is full; the engine is at `now_s` and runs something."""
        batch = len(self.running)
        steps = self.running[0][0] - self.clock
        if batch > 1:
            steps = min(steps, max(self.cost.kv_tokens - self.context, 0.0) / batch)
        steps = max(steps, 0.0)
        self.target = self.clock + steps
        seconds = steps * self._step_s(batch) + batch * self.cost.context_s * steps * steps / 2
        return max(now_s, self.stalled_until_s) + seconds

    def arrive(self, now_s: float) -> list[Request]:
        """The announced event has come: the requests that have ended, which leave the engine."""
        self.advance(now_s)
        self.clock = max(self.clock, self.target)
        ended = []
        while self.running and self.running[0][0] <= self.clock + 1e-6:
            request = heapq.heappop(self.running)[2]
            self.context -= self._leaves(request, 0.0)
            ended.append(request)
        if not self.running:
            self.context = 0.0
        return ended

    def is_full(self) -> bool:
        """Whether the KV cache is exhausted and a request must leave."""
        return len(self.running) > 1 and self.context >= self.cost.kv_tokens - 1e-3

    def evict_youngest(self) -> Request:
        """The request that came last leaves with its partial output; its context must be computed again."""
        entry = max(self.running, key=lambda one: one[1])
        self.running.remove(entry)
        heapq.heapify(self.running)
        self.context -= self._leaves(entry[2], entry[0] - self.clock)
        return entry[2]

    def drop(self, request: Request, now_s: float) -> None:
        """A request ends without its answer."""
        self.advance(now_s)
        entry = next(entry for entry in self.running if entry[2] is request)
        self.running.remove(entry)
        heapq.heapify(self.running)
        self.context -= self._leaves(request, entry[0] - self.clock)

    def evict_serving(self) -> list[Request]:
        """Requests that are no samples leave with their partial outputs, in the order in which they came."""
        entries = sorted((entry for entry in self.running if entry[2].sample is None), key=lambda one: one[1])
        if entries:
            self.running = [entry for entry in self.running if entry[2].sample is not None]
            heapq.heapify(self.running)
        for ends, _, request in entries:
            self.context -= self._leaves(request, ends - self.clock)
        return [request for _, _, request in entries]

    def evict_all(self, now_s: float) -> list[Request]:
        """All requests leave with their partial outputs, in the order in which they came."""
        self.advance(now_s)
        entries = sorted(self.running, key=lambda one: one[1])
        self.running.clear()
        for ends, _, request in entries:
            self._leaves(request, ends - self.clock)
        self.context = 0.0
        self.epoch += 1
        return [request for _, _, request in entries]

    def _leaves(self, request: Request, remaining: float) -> float:
        request.context += request.remaining - remaining
        request.remaining = remaining
        request.held_s += self.loading_s - request.load_mark_s
        request.runs_on = -1
        if request.episode.prefix:
            self.prefixes.leave(request.episode.prefix, self.epoch)
        request.cached_on, request.cached_epoch, request.cached = self.index, self.epoch, request.context
        return request.context

    def _step_s(self, batch: int) -> float:
        cost = self.cost
        compute = batch * cost.request_s
        fixed = cost.weights_s if cost.weights_s > compute else compute
        return fixed + cost.overhead_s + self.context * cost.context_s
