"""The controller's Prometheus metrics, on a port of their own where one is set."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from weir.scripts.launch.errors import UsageError


class ClusterMetrics:
    """What members are at, and the seconds that they spent with it."""

    def __init__(self, port: int | None) -> None:
        """Raises `UsageError` where the port is taken."""
        self.registry = CollectorRegistry()
        self._phase = Gauge(
            "weir_member_phase", "1 for the phase of a member", ["member", "phase"], registry=self.registry
        )
        self._phases = Counter("weir_phases", "Phases begun", ["member", "phase"], registry=self.registry)
        self._seconds = Counter(
            "weir_member_seconds", "Seconds by activity", ["member", "activity"], registry=self.registry
        )
        self._last: dict[str, str] = {}
        try:
            self._server = start_http_server(port, "127.0.0.1", self.registry)[0] if port is not None else None
        except OSError as error:
            raise UsageError(
                f"cluster.metrics_port = {port} cannot be used ({error}): name another, or none"
            ) from error

    def began(self, member: str, phase: str, seconds: Mapping[str, float]) -> None:
        """A member is at something else; the seconds are those of its phase before."""
        if (last := self._last.get(member)) is not None:
            self._phase.labels(member=member, phase=last).set(0)
        self._last[member] = phase
        self._phase.labels(member=member, phase=phase).set(1)
        self._phases.labels(member=member, phase=phase).inc()
        for activity, spent in seconds.items():
            self._seconds.labels(member=member, activity=activity).inc(spent)

    def close(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.shutdown()
