"""The agents of a controller: a process that starts a group for each permit; started again when it dies."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from weir.scripts.live.child import Child


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
    def argv(self) -> list[str]:
        """The command line of the process."""
        options = {
            "config": str(self.config) if self.config else "",
            "tasks": str(self.tasks),
            "state": str(self.state),
            "split": self.split,
            "seed": self.seed,
            "changes": self.changes,
        }
        return [sys.executable, "-m", "weir.scripts.live.rollout_process", json.dumps(options)]


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
        self._options, self._log_path, self._retry_s, self._say = options, log_path, retry_s, say
        self._child: Child | None = None

    async def start(self) -> None:
        """Start the process; permits that were given before are lost."""
        self._child = await Child.start(self._options.argv, self._log_path)

    async def run(self, groups: Groups) -> None:
        """Pass on what the process reports, and start it again when it dies, until cancelled."""
        while True:
            assert self._child is not None
            async for report in self._child.reports():
                if "started" in report:
                    groups.group_started(report["started"])
                else:
                    groups.group_ended(report["ended"], complete=report["complete"])
            status = await self._child.close()
            self._child = None
            self._say(f"the agents ended with status {status} and are started again; their log is {self._log_path}")
            await asyncio.sleep(self._retry_s)
            await self.start()
            groups.agents_died()

    @property
    def pid(self) -> int | None:
        """The process, where it runs."""
        return self._child.pid if self._child is not None else None

    def allow(self, count: int) -> None:
        """Let so many more groups start."""
        if self._child is not None:
            self._child.send(count)

    async def close(self) -> None:
        """End the process at once."""
        if self._child is not None:
            self._child.kill()
            await self._child.close()
