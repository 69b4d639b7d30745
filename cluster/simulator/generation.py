"""The engines of a simulated cluster and the requests among them: one queue, the least loaded engine, caches.

A request of a later turn goes back to the engine that has its context, if that has room; any other goes to the engine
with the fewest requests. Requests that cannot be admitted wait in one queue; those that were moved come first. With
`keeps_serving` requests that are no samples go before all others, and never to an engine that loads while another one
takes requests.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable

from weir.cluster.simulator.engine import Engine, Request
from weir.cluster.timeline import Activity, Timeline


class Generation:
    """All engines, of which those in `open` take requests.

    `schedule(engine, at_s, generation)` asks for a call of `arrive` at that moment with that generation number.
    """

    def __init__(
        self,
        engines: list[Engine],
        timeline: Timeline,
        schedule: Callable[[Engine, float], None],
        *,
        keeps_serving: bool = False,
    ) -> None:
        self.engines, self.timeline, self._schedule = engines, timeline, schedule
        self._keeps_serving = keeps_serving
        self.open: set[int] = set()
        self.loading: set[int] = set()
        self.waiting: deque[Request] = deque()
        self.serve_waiting: deque[Request] = deque()
        self.num_thinking = 0
        self.num_moved = 0
        self.num_admitted = 0
        self.num_evicted = 0
        self._by_load: list[tuple[int, int]] = []
        self._changed: dict[int, None] = {}

    @property
    def cached_share(self) -> float | None:
        """Share of the prompts' tokens that KV caches held; None where no prompt says what it shares."""
        asked = sum(engine.prefixes.asked for engine in self.engines)
        return sum(engine.prefixes.found for engine in self.engines) / asked if asked else None

    def submit(self, request: Request, now_s: float) -> None:
        """A turn is to be generated; `flush` afterwards."""
        request.waits_since_s = now_s
        engine = self.engines[request.cached_on] if request.cached_on >= 0 else None
        serves = self._keeps_serving and request.sample is None
        if engine is not None and not self.waiting and engine.index in self.open and not (serves and self.loading):
            engine.advance(now_s)
            if engine.epoch == request.cached_epoch and engine.has_room(request):
                self._admit(engine, request, now_s)
                return
        (self.serve_waiting if serves else self.waiting).append(request)

    def drop(self, request: Request, now_s: float) -> None:
        """A request, running or waiting, ends without its answer; `flush` afterwards."""
        if request.runs_on >= 0:
            engine = self.engines[request.runs_on]
            engine.drop(request, now_s)
            self._changed[engine.index] = None
            self._offer(engine)
        elif request in self.waiting:
            self.waiting.remove(request)

    def enter(self, engine: Engine, now_s: float) -> None:
        """The engine takes requests from now on."""
        engine.last_s, engine.stalled_until_s = now_s, now_s
        engine.epoch += 1
        self.open.add(engine.index)
        self._offer(engine)
        self._note(engine, now_s)

    def leave(self, engine: Engine, now_s: float) -> None:
        """The engine takes no more requests; those it has move to others with their partial output."""
        self.open.discard(engine.index)
        self.loading.discard(engine.index)
        engine.generation += 1
        self._changed.pop(engine.index, None)
        moved = engine.evict_all(now_s)
        self.num_moved += len(moved)
        self._wait_first(moved, now_s)

    def begin_load(self, engine: Engine, seconds: float, now_s: float) -> None:
        """The engine holds its requests while it loads weights, and computes their contexts again afterwards."""
        engine.advance(now_s)
        if self._keeps_serving and self.open - self.loading - {engine.index}:
            self._wait_first(engine.evict_serving(), now_s)
            self._offer(engine)
        engine.stall(now_s, seconds + engine.context * engine.cost.prefill_s)
        engine.loading_s += seconds
        engine.loads_until_s = now_s + seconds
        engine.epoch += 1
        self.loading.add(engine.index)
        self.timeline.switch(engine.name, Activity.LOAD, now_s)
        self._changed[engine.index] = None

    def end_load(self, engine: Engine, now_s: float) -> None:
        """The weights are there."""
        self.loading.discard(engine.index)
        self._note(engine, now_s)

    def arrive(self, engine: Engine, now_s: float) -> tuple[list[Request], bool]:
        """An engine's event: the requests that ended, and whether its KV cache was exhausted. `flush` afterwards."""
        ended = engine.arrive(now_s)
        exhausted = False
        while engine.is_full():
            exhausted = True
            self.num_evicted += 1
            self._wait_first([engine.evict_youngest()], now_s)
        self._changed[engine.index] = None
        self._offer(engine)
        return ended, exhausted

    def flush(self, now_s: float) -> None:
        """Admit what waits, and announce the next event of each engine that changed."""
        while self.serve_waiting:
            engine = self._least_loaded(self.serve_waiting[0], now_s, self.loading if self.open - self.loading else ())
            if engine is None:
                break
            self._admit(engine, self.serve_waiting.popleft(), now_s)
        while self.waiting:
            engine = self._least_loaded(self.waiting[0], now_s)
            if engine is None:
                break
            self._admit(engine, self.waiting.popleft(), now_s)
        for index in self._changed:
            engine = self.engines[index]
            engine.generation += 1
            if engine.running:
                self._schedule(engine, engine.next_event_s(now_s))
            if index not in self.loading:
                self._note(engine, now_s)
        self._changed.clear()

    def _admit(self, engine: Engine, request: Request, now_s: float) -> None:
        engine.admit(request, now_s)
        self.num_admitted += 1
        self._changed[engine.index] = None
        self._offer(engine)

    def _least_loaded(self, request: Request, now_s: float, without: Collection[int] = ()) -> Engine | None:
        passed = []
        found = None
        while self._by_load and found is None:
            load, index = heapq.heappop(self._by_load)
            engine = self.engines[index]
            if index in self.open and len(engine.running) == load:
                if index in without:
                    passed.append((load, index))
                    continue
                engine.advance(now_s)
                if engine.has_room(request):
                    found = engine
        for entry in passed:
            heapq.heappush(self._by_load, entry)
        return found

    def _offer(self, engine: Engine) -> None:
        if len(engine.running) < engine.cost.max_running and engine.index in self.open:
            heapq.heappush(self._by_load, (len(engine.running), engine.index))

    def _wait_first(self, requests: Iterable[Request], now_s: float) -> None:
        moved = list(requests)
        for request in moved:
            request.waits_since_s = now_s
        if self._keeps_serving:
            self.serve_waiting.extendleft(reversed([request for request in moved if request.sample is None]))
            moved = [request for request in moved if request.sample is not None]
        self.waiting.extendleft(reversed(moved))

    def _note(self, engine: Engine, now_s: float) -> None:
        if engine.running:
            activity = Activity.GENERATE
        else:
            activity = Activity.AGENTS_THINK if self.num_thinking else Activity.NO_SAMPLES
        if engine.index in self.open:
            self.timeline.switch(engine.name, activity, now_s)
