"""What a kernel-evaluation server counts, for Prometheus. No candidate's text is in a label."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from weir.kernel_eval.protocol import EvalReply

_SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Counts:
    """The figures of one server."""

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

    def watch(self, name: str, says: str, now: Callable[[], float]) -> None:
        """A figure that is asked for when it is read."""
        Gauge(f"weir_kernel_eval_{name}", says, registry=self._registry).set_function(now)

    def ended(self, reply: EvalReply) -> None:
        """Count a verdict."""
        self._results.labels(outcome=str(reply.fault or "correct")).inc()
        self._seconds.observe(reply.seconds)
        if isinstance(rule := reply.details.get("rule"), str):
            self._rules.labels(rule=rule).inc()
        self._sum_s, self._num = self._sum_s + reply.seconds, self._num + 1

    def mean_seconds(self) -> float:
        """Of an evaluation so far; 1 before there was one."""
        return self._sum_s / self._num if self._num else 1.0

    def text(self) -> bytes:
        """In Prometheus' text form."""
        return generate_latest(self._registry)
