"""The gates of all workers of a proxy, closed and opened as one, and their states and metrics as one.

Invariants: a request to one worker is carried out by all that live, and answered when all have done so; a worker that
starts while the others' gates are closed starts closed, and opens with them. A worker closes or opens its own gate
before it looks for the others, so that one which starts in between learns of it from one side or the other. One proxy
only: the publisher calls several proxies one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from weir.proxy.control.peers import REQUEST_LIMIT_S, Peers
from weir.proxy.control.totals import total_metrics, total_state
from weir.proxy.engines.gate import Gate, PauseMode
from weir.proxy.engines.watch import Announced
from weir.proxy.errors import PeerFailed, PeerGone
from weir.proxy.metrics import Metrics
from weir.store.catalog.rows import ProxyRow
from weir.store.clock import now_us

MAX_DRAIN_S = 86_400.0
MAX_LEASE_S = 86_400.0
FOLLOW_S = 0.5
StateReader = Callable[[], dict[str, Any]]

logger = logging.getLogger("weir.proxy.control.gates")


class Pause(BaseModel):
    """POST /weir/pause."""

    model_config = ConfigDict(extra="forbid")

    mode: PauseMode = PauseMode.CONTINUE
    limit_s: float | None = Field(default=None, gt=0, le=MAX_DRAIN_S)
    serve_passes: bool = False  # calls with the tag `serve` are not held
    lease_s: float | None = Field(default=None, gt=0, le=MAX_LEASE_S)  # for so long whoever closes it counts as living
    renews: bool = False  # only the lease of a gate that is not open


class Resume(BaseModel):
    """POST /weir/resume. The version is the published one, for the state; records hold what engines report."""

    model_config = ConfigDict(extra="forbid")

    weight_version: int | Annotated[str, Field(pattern="^[!-~]{1,200}$")] | None = None
    left_out: dict[str, str] = {}  # engines that the publish left paused, and why


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
        adapter_name: str | None = None,
        on_left_out: Callable[[dict[str, str]], None] = lambda _: None,
    ) -> None:
        """`always_drains`: calls in flight cannot be continued after an abort, so every pause drains.

        `adapter_name`: of the LoRA adapter that calls name; it is in the answers to whoever closes the gates.
        `on_left_out` hears of engines that a publish left paused, before the gates open.
        """
        self.announced: Announced | None = None
        self._gate = gate
        self._peers = peers
        self._drain_limit_s = drain_limit_s
        self._always_drains = always_drains
        self._adapter_name = adapter_name
        self._on_left_out = on_left_out
        self._state = state
        self._metrics = metrics
        self._following: asyncio.Task[None] | None = None
        self._serve_passes = False  # at the gates that this one follows

    async def follow(self) -> None:
        """At the start: close the gate where other workers' gates are closed, until they open."""
        if await self._others_are_closed():
            await self._gate.close(PauseMode.CONTINUE, self._drain_limit_s, serve_passes=self._serve_passes)
            self._following = asyncio.create_task(self._open_with_others())

    async def pause(self, body: Pause) -> dict[str, Any]:
        """Close the gates of all workers. Raises `PeerFailed` where a live one failed to."""
        here: dict[str, Any]
        here, others = await asyncio.gather(
            self.pause_here(body), self._request_all("/weir/worker/pause", body, self._limit_s(body) + REQUEST_LIMIT_S)
        )
        here["in_flight"] += sum(answer["in_flight"] for answer in others)
        return here

    async def pause_here(self, body: Pause) -> dict[str, Any]:
        """Close the gate of this worker. The answer asks for a `retract` pause where calls must not be aborted."""
        mode = PauseMode.DRAIN if self._always_drains else body.mode
        if body.renews:
            self._gate.renew(body.lease_s)
        else:
            await self._gate.close(mode, self._limit_s(body), serve_passes=body.serve_passes, lease_s=body.lease_s)
        closed = {"gate": self._gate.state.value, "in_flight": self._gate.in_flight}
        closed |= {"engine_pause": "retract"} if self._always_drains else {}
        return closed | ({} if self._adapter_name is None else {"adapter_name": self._adapter_name})

    async def resume(self, body: Resume) -> dict[str, Any]:
        """Open the gates of all workers. Raises `PeerFailed` where a live one failed to."""
        if body.left_out:
            self._on_left_out(body.left_out)
        here = self.resume_here(body)
        await self._request_all("/weir/worker/resume", body, REQUEST_LIMIT_S)
        return here

    def resume_here(self, body: Resume) -> dict[str, Any]:
        """Open the gate of this worker."""
        if body.weight_version is not None:
            self.announced = Announced(version=str(body.weight_version), at_us=now_us())
        self._gate.open()
        return {"gate": self._gate.state.value}

    def state_here(self) -> dict[str, Any]:
        """The state of this worker."""
        return self._state() | {"announced_version": self.announced and self.announced.version}

    async def state(self) -> dict[str, Any]:
        """The state of the proxy, and under `workers` that of each of its workers."""
        states = [self.state_here(), *await self._collect(lambda peer: self._peers.get(peer, "/weir/worker/state"))]
        return total_state(states) | {"workers": states}

    def exposition_here(self) -> bytes:
        """The metrics of this worker."""
        return self._metrics.exposition()

    async def exposition(self) -> bytes:
        """The metrics of all workers."""
        others = await self._collect(lambda peer: self._peers.get(peer, "/weir/worker/metrics"))
        return total_metrics([self.exposition_here(), *others])

    async def notify_workers(self, path: str, limit_s: float = REQUEST_LIMIT_S) -> None:
        """POST to all other workers; one that does not answer within the limit is logged."""
        await self._collect(lambda peer: self._peers.post(peer, path, {}, limit_s))

    async def close(self) -> None:
        """Stop following the others."""
        if self._following is not None:
            self._following.cancel()

    def _limit_s(self, body: Pause) -> float:
        return body.limit_s or self._drain_limit_s

    async def _request_all(self, path: str, body: BaseModel, limit_s: float) -> list[Any]:
        payload = body.model_dump(mode="json", exclude_none=True)
        answers = await asyncio.gather(
            *(self._unless_gone(self._peers.post(peer, path, payload, limit_s)) for peer in await self._peers.workers())
        )
        return [answer for answer in answers if answer is not None]

    async def _collect(self, ask: Callable[[ProxyRow], Awaitable[Any]]) -> list[Any]:
        """The answers of the other workers; one that fails is left out, and that is logged."""
        answers = []
        for peer in await self._peers.workers():
            try:
                answers.append(await ask(peer))
            except PeerGone:
                continue
            except PeerFailed as error:
                logger.warning("a worker is left out of a request to all workers: %s", error)
        return answers

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
                logger.info("a worker did not report its gate: %s", error)
                continue
            if (version := state["announced_version"]) is not None:
                self.announced = Announced(version=version, at_us=0)  # when, is not told
            if state["gate"] != "open":
                self._serve_passes = state.get("serve_passes", False)
                return True
        return False

    async def _open_with_others(self) -> None:
        while not self._gate.is_open:
            await asyncio.sleep(FOLLOW_S)
            if not self._gate.is_open and not await self._others_are_closed():
                self._gate.open()
