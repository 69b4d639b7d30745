"""The agents of a controller: a process that starts a group for each permit; started again when it dies.

It runs beside the controller, whatever runs the others: agents call the proxies, which listen here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from weir.scripts.live.processes.child import Child
from weir.scripts.live.processes.processes import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOptions:
    """What agents run over. `state` is the journal of groups that have ended; `changes` are over section [agents]."""

    config: Path | None
    tasks: Path
    state: Path
    split: str = "train"
    seed: int = 0
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> list[str]:
        """The arguments of the process."""
        options = {
            "config": str(self.config) if self.config else "",
            "tasks": str(self.tasks),
            "state": str(self.state),
            "split": self.split,
            "seed": self.seed,
            "changes": self.changes,
        }
        return [json.dumps(options)]


class Groups(Protocol):
    """Who hears of groups."""

    def group_started(self, group: str) -> None:
        """A permit was used."""

    def group_ended(self, group: str, *, complete: bool) -> None:
        """All its sessions have ended."""

    def agents_died(self) -> None:
        """Groups that ran or were permitted are gone."""


class Rollouts:
    """Agents in a process of their own."""

    def __init__(self, options: RolloutOptions, log_path: Path, retry_s: float, say: Callable[[str], None]) -> None:
        module = "weir.scripts.live.rollout_process"
        self._order = Order(module=module, arguments=options.arguments, log_path=log_path)
        self._retry_s, self._say = retry_s, say
        self._child: Child | None = None

    async def start(self) -> None:
        """Start the process; permits that were given before are lost."""
        self._child = await Child.start(self._order)

    async def run(self, groups: Groups) -> None:
        """Pass on what the process reports, and start it again when it dies, until cancelled."""
        while True:
            assert self._child is not None
            async for report in self._child.reports():
                if "started" in report:
                    groups.group_started(report["started"])
                else:
                    groups.group_ended(report["ended"], complete=report["complete"])
            how, self._child = await self._child.close(), None
            self._say(f"the agents ended with {how} and are started again; their log is {self._order.log_path}")
            await asyncio.sleep(self._retry_s)
            await self.start()
            groups.agents_died()

    def allow(self, count: int) -> None:
        """Let so many more groups start."""
        if self._child is not None:
            self._child.send(count)

    def abort(self, groups: Sequence[str]) -> None:
        """End the sessions of groups that run; others are left alone."""
        if self._child is not None:
            self._child.send({"abort": list(groups)})

    async def close(self) -> None:
        """End the process at once."""
        if self._child is not None:
            self._child.kill()
            await self._child.close()
