"""Which weights the engines serve between two closings of the gate, for answers that do not say it themselves.

SGLang names the versions of an answer that is not streamed; its streams, and vLLM, do not. The engines are asked
(/model_info of each) when the first call passes after the gate has opened; an answer that began and ended between the
same two closings was sampled by that version. Invariant: where engines differ, do not say, or weights may have changed
in the middle, the version is None, never a guess. Weights that are changed past the gate are not noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from weir.proxy.engines.gate import Gate, GateState


@dataclass(frozen=True, slots=True)
class Served:
    """The version served since the gate was closed for the `times_closed`-th time; None where it is not known."""

    times_closed: int
    version: str | None


class EngineVersions:
    """Asks once for each opening of the gate."""

    def __init__(self, gate: Gate, ask: Callable[[], Awaitable[set[str | None]]], assumed: str | None) -> None:
        """`ask` gives what every engine reports; `assumed` counts for engines that report nothing."""
        self._gate = gate
        self._ask = ask
        self._assumed = assumed
        self._asking = asyncio.Lock()
        self._served: Served | None = None

    async def now(self) -> Served:
        """What is served now; to be asked after the gate and before the call is sent."""
        served = self._served
        if served is not None and served.times_closed == self._gate.times_closed:
            return served
        async with self._asking:
            served = self._served
            times_closed = self._gate.times_closed
            if served is None or served.times_closed != times_closed:
                served = self._served = Served(times_closed, self._agreed(await self._ask()))
        return served

    def held_on(self, began: Served) -> bool:
        """Whether the weights are still those of `began`: a gate that only drains has changed nothing yet."""
        closings = self._gate.times_closed - began.times_closed
        return closings == 0 or (closings == 1 and self._gate.state is GateState.CLOSING)

    def _agreed(self, reported: set[str | None]) -> str | None:
        if reported <= {None}:
            return self._assumed
        return reported.pop() if len(reported) == 1 else None
