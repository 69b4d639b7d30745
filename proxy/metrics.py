"""The proxy's Prometheus metrics, in a registry of their own. docs/proxy.md lists them; a test holds the two together.

Invariant: counters whose labels are known are exposed as 0 from the start. Labelled children are looked up once and
kept, because prometheus_client's look-up costs more than the counting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from weir.store.records.call_record import CallRecord, FinishReason, Stitch

_M = TypeVar("_M", Counter, Histogram)
LONG_S = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
SHORT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Labelled(Generic[_M]):
    """A metric with its children, by their labels."""

    def __init__(self, metric: _M) -> None:
        self._metric: _M = metric
        self._children: dict[tuple[str, ...], _M] = {}

    def labels(self, **labels: str) -> _M:
        """The child with these labels; they must always be given in the same order."""
        values = tuple(labels.values())
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self._metric.labels(**labels)
        return child


class Metrics:
    """One object for each metric; `exposition` is the text that /metrics serves."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter, labelled, histogram = self._counter, self._labelled, self._histogram
        self.calls = labelled("weir_calls", "Calls that ended, by dialect and how.", "dialect", "finish")
        self.requests = labelled("weir_requests", "Agents' requests, by dialect and HTTP status.", "dialect", "status")
        self.tokens = labelled("weir_tokens", "Prompt, output and cached prompt tokens of calls.", "kind")
        self.stitch = labelled("weir_stitch", "How prompts were made.", "result")
        self.upstream_errors = labelled("weir_upstream_errors", "Pieces that no engine took or finished.", "kind")
        self.retries = labelled("weir_retries", "Requests that were a client's retry, by what became of them.", "how")
        self.budget_endings = labelled(
            "weir_budget_endings", "Answers cut and calls refused by a session's budget.", "by", "how"
        )
        self.lowered = labelled("weir_calls_lowered", "Calls below their route's certified level, by why.", "reason")
        self.look_ups = labelled("weir_look_ups", "Calls looked for in the store, by where they were.", "what", "found")
        self.sampling_overridden = counter("weir_sampling_overridden", "Calls with other sampling than was asked for.")
        self.routed_experts_missing = counter(
            "weir_routed_experts_missing", "Answers without the experts that were asked for."
        )
        self.sessions_idle = counter("weir_sessions_idle", "Sessions that were finished because they were idle.")
        self.records_lost = counter("weir_records_lost", "Answers given although they could not be recorded.")
        self.hold_seconds = histogram("weir_hold_seconds", "Time that calls waited for their turn.", LONG_S)
        self.serve_hold_seconds = histogram("weir_serve_hold_seconds", "The same of calls with the tag serve.", LONG_S)
        self.first_token_seconds = histogram(
            "weir_first_token_seconds", "Time from a call's start to its first token.", SHORT_S
        )
        self.call_seconds = histogram("weir_call_seconds", "Time from a call's start to its end.", SHORT_S)
        self._level = Gauge("weir_capture_level", "1 for the level of capture.", ["level"], registry=self._registry)
        self._begin()

    def count(self, record: CallRecord) -> None:
        """Count a call that has ended."""
        self.calls.labels(dialect=record.dialect, finish=record.finish.value).inc()
        self.tokens.labels(kind="prompt").inc(len(record.prompt_ids) // 4)
        self.tokens.labels(kind="output").inc(len(record.output_ids) // 4)
        self.tokens.labels(kind="cached").inc(record.cached_tokens)
        if record.asked_sampling:
            self.sampling_overridden.inc()
        self.call_seconds.observe((record.finished_us - record.started_us) / 1e6)
        if record.first_token_us is not None:
            self.first_token_seconds.observe((record.first_token_us - record.started_us) / 1e6)

    def set_level(self, level: str) -> None:
        """Expose the level at which calls are captured."""
        self._level.labels(level=level).set(1)

    def gauge(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """Register a gauge whose value is read at each scrape."""
        Gauge(name, documentation, registry=self._registry).set_function(value)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _begin(self) -> None:
        for finish in FinishReason:
            self.calls.labels(dialect="chat", finish=finish.value)
        for kind in ("prompt", "output", "cached"):
            self.tokens.labels(kind=kind)
        for result in Stitch:
            self.stitch.labels(result=result.value)
        for how in ("joined", "handed_over", "replayed", "new"):
            self.retries.labels(how=how)
        for kind in ("UpstreamNotTaken", "UpstreamNotReached", "UpstreamLost"):
            self.upstream_errors.labels(kind=kind)
        for by in ("calls", "output_tokens", "seconds"):
            self.budget_endings.labels(by=by, how="refused")

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(name, documentation, registry=self._registry)

    def _labelled(self, name: str, documentation: str, *labels: str) -> Labelled[Counter]:
        return Labelled(Counter(name, documentation, labels, registry=self._registry))

    def _histogram(self, name: str, documentation: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, documentation, buckets=buckets, registry=self._registry)
