"""The weight version that engines serve between two closings of the gate, for answers that do not report one.

SGLang reports the versions of an answer that is not streamed; its streams, and vLLM, do not. The engines are asked
(/model_info of each) when the first call passes after the gate has opened; an answer that began and ended between the
same two closings was sampled by that version. Invariant: where engines differ, report nothing, or weights may have
changed in the middle, the version is None, never a guess. A change of weights without closing the gate goes unnoticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from weir.proxy.engines.gate import Gate, GateState
from weir.proxy.engines.version_labels import version_label


@dataclass(frozen=True, slots=True)
class Served:
    """The version served since the gate was closed for the `times_closed`-th time; None where it is not known."""

    times_closed: int
    version: str | None
    assumed: int | None = None  # of the settings, for spans that the engine names by no integer


class EngineVersions:
    """Asks once for each opening of the gate."""

    def __init__(self, gate: Gate, ask: Callable[[], Awaitable[set[str | None]]], assumed: int | None) -> None:
        """`ask` returns the version of every engine; `assumed` stands for one that is no integer."""
        self._gate = gate
        self._ask = ask
        self._assumed = assumed
        self._asking = asyncio.Lock()
        self._served: Served | None = None

    async def now(self) -> Served:
        """The version served now; must be called after the gate and before the call is sent."""
        served = self._served
        if served is not None and served.times_closed == self._gate.times_closed:
            return served
        async with self._asking:
            served = self._served
            times_closed = self._gate.times_closed
            if served is None or served.times_closed != times_closed:
                served = self._served = Served(times_closed, self._agreed(await self._ask()), self._assumed)
        return served

    def held_on(self, began: Served) -> bool:
        """Whether the weights are still those of `began`; a gate that only drains has changed nothing yet."""
        closings = self._gate.times_closed - began.times_closed
        return closings == 0 or (closings == 1 and self._gate.state is GateState.CLOSING)

    def _agreed(self, reported: set[str | None]) -> str | None:
        reported = reported or {None}
        if self._assumed is None and None in reported:
            return None
        labels = {version_label(version, self._assumed) for version in reported}
        return labels.pop() if len(labels) == 1 else None
