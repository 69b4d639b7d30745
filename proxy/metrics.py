"""The proxy's Prometheus metrics, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """One object for each metric; `exposition` is the text that /metrics serves."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.calls = Counter("weir_calls", "Calls that ended, by how.", ["finish"], registry=self._registry)
        self.refused = Counter(
            "weir_requests_refused", "Requests that were refused, by HTTP status.", ["status"], registry=self._registry
        )
        self.tokens = Counter("weir_tokens", "Tokens of recorded calls.", ["kind"], registry=self._registry)
        self.stitch = Counter("weir_stitch", "How prompts were made.", ["result"], registry=self._registry)
        self.look_ups = Counter(
            "weir_look_ups",
            "Calls looked for in the store, by where they were.",
            ["what", "found"],
            registry=self._registry,
        )
        self.upstream_errors = Counter(
            "weir_upstream_errors", "Pieces that no engine took or finished.", ["kind"], registry=self._registry
        )
        self.records_lost = Counter(
            "weir_records_lost", "Answers given although they could not be recorded.", registry=self._registry
        )
        self.budget_endings = Counter(
            "weir_budget_endings",
            "Answers that a session's budget cut and calls it refused, by what was used up.",
            ["by", "how"],
            registry=self._registry,
        )
        self.hold_seconds = Histogram(
            "weir_hold_seconds",
            "Time that calls waited at the gate.",
            buckets=(0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600),
            registry=self._registry,
        )

    def watch(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        Gauge(name, documentation, registry=self._registry).set_function(value)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text form."""
        return generate_latest(self._registry)
