"""What the workers of one proxy say of themselves, put together: their states and their Prometheus metrics.

Numbers are added. Invariant: one worker alone gives what it gave. Not here: asking the workers.

Closing and opening the gates of all workers of a proxy, and what they say of themselves together.

Invariant: what is asked of one worker is done by all that live, and answered when all have done it; a worker that
starts while the others' gates are closed starts closed, and opens with them. A worker closes or opens its own gate
before it looks for the others, so that one which starts in between learns of it from one side or the other. Not here:
several proxies, which the publisher tells one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from weir.proxy.control.peers import ASK_LIMIT_S, Peers
from weir.proxy.engines.gate import Gate, PauseMode
from weir.proxy.errors import PeerFailed, PeerGone
from weir.proxy.metrics import Metrics
from weir.store.catalog.rows import ProxyRow

_LEAST = ("weir_gate_open",)  # 1 only where it is 1 in every worker
_CREATED = "_created"


def total_state(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One state of several; of what cannot be added, the first worker's is taken. The gate is open if all are."""
    total = dict(states[0])
    for name, first in total.items():
        values = [state[name] for state in states if state.get(name) is not None]
        if isinstance(first, bool):
            total[name] = any(values)
        elif isinstance(first, int | float):
            total[name] = sum(values)
    total["gate"] = next((state["gate"] for state in states if state["gate"] != "open"), "open")
    total["record_failure"] = next((state["record_failure"] for state in states if state.get("record_failure")), None)
    for name in ("weight_version", "announced_version"):
        versions = [str(state[name]) for state in states if state.get(name) is not None]
        total[name] = max(versions, key=_number) if versions else None
    return total


def total_metrics(expositions: Sequence[bytes]) -> bytes:
    """One text exposition of several, with the samples of equal names and labels added."""
    if len(expositions) == 1:
        return expositions[0]
    heads: dict[str, list[str]] = {}
    samples: dict[str, dict[str, float]] = {}
    for exposition in expositions:
        _collect(exposition.decode().splitlines(), heads, samples)
    lines = []
    for family, head in heads.items():
        lines += head
        lines += [f"{name} {value!r}" for name, value in samples[family].items()]
    return "\n".join([*lines, ""]).encode()


def _collect(lines: Iterable[str], heads: dict[str, list[str]], samples: dict[str, dict[str, float]]) -> None:
    family = ""
    for line in lines:
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            heads.setdefault(family, [])
            samples.setdefault(family, {})
        if line.startswith("#"):
            if line not in heads[family]:
                heads[family].append(line)
            continue
        name, _, text = line.rpartition(" ")
        found, value = samples[family].get(name), float(text)
        if found is None:
            samples[family][name] = value
        else:
            least = family in _LEAST or family.endswith(_CREATED)
            samples[family][name] = min(found, value) if least else found + value


def _number(version: str) -> tuple[int, str]:
    """Versions by number; what is no number comes first."""
    return (int(version), "") if version.isdecimal() else (-1, version)


MAX_DRAIN_S = 86_400.0
FOLLOW_S = 0.5
StateReader = Callable[[], dict[str, Any]]

logger = logging.getLogger("weir.proxy.control.gates")


class Pause(BaseModel):
    """POST /weir/pause."""

    model_config = ConfigDict(extra="forbid")

    mode: PauseMode = PauseMode.CONTINUE
    limit_s: float | None = Field(default=None, gt=0, le=MAX_DRAIN_S)


class Resume(BaseModel):
    """POST /weir/resume. The version is what was published, for the state; records hold what engines report."""

    model_config = ConfigDict(extra="forbid")

    weight_version: int | Annotated[str, Field(pattern="^[!-~]{1,200}$")] | None = None


class GateControl:
    """The gate of this worker and those of its peers."""

    def __init__(
        self,
        gate: Gate,
        peers: Peers,
        drain_limit_s: float,
        state: StateReader,
        metrics: Metrics,
        *,
        always_drains: bool = False,
    ) -> None:
        """`always_drains`: calls in flight cannot be continued after an abort, so they always have their time."""
        self.announced: str | None = None
        self._gate = gate
        self._peers = peers
        self._drain_limit_s = drain_limit_s
        self._always_drains = always_drains
        self._state = state
        self._metrics = metrics
        self._following: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        """At the start: be closed where others are, until they open."""
        if await self._others_are_closed():
            await self._gate.close(PauseMode.CONTINUE, self._drain_limit_s)
            self._following = asyncio.create_task(self._open_with_others())

    async def pause(self, body: Pause) -> dict[str, Any]:
        """Close the gates of all workers. Raises `PeerFailed` when one that lives did not."""
        here: dict[str, Any]
        here, others = await asyncio.gather(
            self.pause_here(body), self._tell("/weir/worker/pause", body, self._limit_s(body) + ASK_LIMIT_S)
        )
        here["in_flight"] += sum(answer["in_flight"] for answer in others)
        return here

    async def pause_here(self, body: Pause) -> dict[str, Any]:
        """Close the gate of this worker. What is in flight then and must not be aborted asks for a `retract` pause."""
        await self._gate.close(PauseMode.DRAIN if self._always_drains else body.mode, self._limit_s(body))
        closed = {"gate": self._gate.state.value, "in_flight": self._gate.in_flight}
        return closed | {"engine_pause": "retract"} if self._always_drains else closed

    async def resume(self, body: Resume) -> dict[str, Any]:
        """Open the gates of all workers. Raises `PeerFailed` when one that lives did not."""
        here = self.resume_here(body)
        await self._tell("/weir/worker/resume", body, ASK_LIMIT_S)
        return here

    def resume_here(self, body: Resume) -> dict[str, Any]:
        """Open the gate of this worker."""
        if body.weight_version is not None:
            self.announced = str(body.weight_version)
        self._gate.open()
        return {"gate": self._gate.state.value}

    def state_here(self) -> dict[str, Any]:
        """What is true of this worker."""
        return self._state() | {"announced_version": self.announced}

    async def state(self) -> dict[str, Any]:
        """What is true of the proxy, and under `workers` of each of its workers."""
        states = [self.state_here(), *await self._gather(lambda peer: self._peers.get(peer, "/weir/worker/state"))]
        return total_state(states) | {"workers": states}

    def exposition_here(self) -> bytes:
        """The metrics of this worker."""
        return self._metrics.exposition()

    async def exposition(self) -> bytes:
        """The metrics of all workers."""
        others = await self._gather(lambda peer: self._peers.get(peer, "/weir/worker/metrics"))
        return total_metrics([self.exposition_here(), *others])

    async def notify_workers(self, path: str) -> None:
        """POST to all other workers; one that does not answer is logged."""
        await self._gather(lambda peer: self._peers.post(peer, path, {}))

    async def close(self) -> None:
        """Stop following the others."""
        if self._following is not None:
            self._following.cancel()

    def _limit_s(self, body: Pause) -> float:
        return body.limit_s or self._drain_limit_s

    async def _tell(self, path: str, body: BaseModel, limit_s: float) -> list[Any]:
        said = body.model_dump(mode="json", exclude_none=True)
        answers = await asyncio.gather(
            *(self._unless_gone(self._peers.post(peer, path, said, limit_s)) for peer in await self._peers.workers())
        )
        return [answer for answer in answers if answer is not None]

    async def _gather(self, ask: Callable[[ProxyRow], Awaitable[Any]]) -> list[Any]:
        """What the other workers answer; one that does not is left out, and that is logged."""
        found = []
        for peer in await self._peers.workers():
            try:
                found.append(await ask(peer))
            except PeerGone:
                continue
            except PeerFailed as error:
                logger.warning("a worker is left out of what concerns all: %s", error)
        return found

    async def _unless_gone(self, answer: Awaitable[Any]) -> Any:
        try:
            return await answer
        except PeerGone:
            return None

    async def _others_are_closed(self) -> bool:
        for peer in await self._peers.others():
            try:
                state = await self._peers.get(peer, "/weir/worker/state")
            except (PeerGone, PeerFailed) as error:
                logger.info("not asked whether the gate is closed: %s", error)
                continue
            self.announced = state["announced_version"] or self.announced
            if state["gate"] != "open":
                return True
        return False

    async def _open_with_others(self) -> None:
        while not self._gate.is_open:
            await asyncio.sleep(FOLLOW_S)
            if not self._gate.is_open and not await self._others_are_closed():
                self._gate.open()
