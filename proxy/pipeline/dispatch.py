"""The gate and the retry policy for one piece of a call."""

from __future__ import annotations

from collections.abc import Callable

from weir.proxy.config import ProxyConfig
from weir.proxy.engines.gate import Gate
from weir.proxy.engines.versions import EngineVersions, Served
from weir.proxy.errors import UpstreamLost, UpstreamNotTaken
from weir.proxy.metrics import Metrics
from weir.proxy.pipeline.attempts import Attempts
from weir.proxy.recording.call import CallInProgress


class Dispatch:
    """Gate and retry policy, as all calls of one process share them."""

    def __init__(
        self,
        config: ProxyConfig,
        gate: Gate,
        metrics: Metrics,
        *,
        on_trouble: Callable[[], None],
        lost_retries: int,
        versions: EngineVersions | None = None,
    ) -> None:
        """`on_trouble` is called when an engine failed a call; `versions` where answers do not name their weights."""
        self.gate = gate
        self._config = config
        self._metrics = metrics
        self._on_trouble = on_trouble
        self._lost_retries = lost_retries
        self._versions = versions

    def attempts(self) -> Attempts:
        """The attempts of a new call."""
        return Attempts(self._config, self.gate, self._lost_retries)

    async def pass_gate(self, call: CallInProgress) -> Served | None:
        """Wait until the gate is open; the weights that are served then, where this proxy asks for them."""
        served = None
        call.waiting = True
        try:
            held_us = await self.gate.wait_open()
            if self._versions is not None:
                served = await self._versions.now()
                while not self.gate.is_open:  # it closed while the engines were asked
                    held_us += await self.gate.wait_open()
                    served = await self._versions.now()
        finally:
            call.waiting = False
        if held_us:
            call.held_us += held_us
            self._metrics.hold_seconds.observe(held_us / 1e6)
        return served

    def pause_after(self, error: UpstreamNotTaken | UpstreamLost, attempts: Attempts) -> float:
        """Count the trouble and report it; seconds to wait before the next attempt, or what `Attempts` raises."""
        self._metrics.upstream_errors.labels(kind=type(error).__name__).inc()
        if self.gate.is_open:
            self._on_trouble()
        return attempts.pause_after(error)
