"""The Prometheus metrics of a server. No label contains text of a candidate."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from weir.kernel_eval.protocol import EvalReply

_SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Counts:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._sum_s, self._num = 0.0, 0
        self._registry = CollectorRegistry()
        registry = self._registry
        self._results = Counter("weir_kernel_eval_results", "Verdicts by outcome.", ["outcome"], registry=registry)
        self._rules = Counter(
            "weir_kernel_eval_broken_rules", "Rules that candidates broke.", ["rule"], registry=registry
        )
        self._seconds = Histogram(
            "weir_kernel_eval_seconds", "Time of an evaluation, queueing left out.", buckets=_SECONDS, registry=registry
        )
        self.cached = Counter("weir_kernel_eval_cached", "Requests answered from the cache.", registry=registry)
        self.joined = Counter(
            "weir_kernel_eval_joined", "Requests answered by an evaluation of their job id.", registry=registry
        )
        self.refused = Counter(
            "weir_kernel_eval_refused", "Requests refused because too many waited.", registry=registry
        )

    def watch(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value is read when the metrics are."""
        Gauge(f"weir_kernel_eval_{name}", description, registry=self._registry).set_function(read)

    def ended(self, reply: EvalReply) -> None:
        """Count a verdict."""
        self._results.labels(outcome=str(reply.fault or "correct")).inc()
        self._seconds.observe(reply.seconds)
        if isinstance(rule := reply.details.get("rule"), str):
            self._rules.labels(rule=rule).inc()
        self._sum_s, self._num = self._sum_s + reply.seconds, self._num + 1

    def mean_seconds(self) -> float:
        """Mean seconds of the evaluations so far; 1 before the first."""
        return self._sum_s / self._num if self._num else 1.0

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
