"""The training slot: a process that trains on the devices of the members that train; started again when it dies."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from weir.cluster.live.world import RoundEnd
from weir.cluster.state import Settings
from weir.scripts.live.child import Child


class Slot:
    """One process at a time, for one round at a time."""

    def __init__(
        self, config_path: Path | None, rules: Settings, log_path: Path, on_step: Callable[[str], None]
    ) -> None:
        given = str(config_path) if config_path else ""
        staleness = str(math.ceil(rules.max_staleness))
        least, most = rules.batch, rules.batch
        if rules.takes_fewer:
            least, most = min(rules.least, rules.batch), rules.batch * (1 + math.ceil(rules.max_staleness))
        numbers = [str(most), str(least), staleness]
        self._argv = [sys.executable, "-m", "weir.scripts.live.slot_process", given, *numbers]
        self._log_path = log_path
        self._on_step = on_step
        self._child: Child | None = None

    async def train(self, known: int, cores: Sequence[int], groups: Sequence[str]) -> RoundEnd:
        """Finish what was left or, if there are groups, run a round of them; `known` is the newest known version."""
        if self._child is None:
            self._child = await Child.start(self._argv, self._log_path)
        self._child.bind(cores)
        self._child.send({"known": known, "groups": list(groups)})
        async for report in self._child.reports():
            if (end := report.get("end")) is not None:
                return RoundEnd(**end)
            self._on_step(report["step"])
        status, self._child = await self._child.close(), None
        return RoundEnd(failure=f"the training slot ended with status {status}; its log is {self._log_path}")

    @property
    def pid(self) -> int | None:
        """The process, where it runs."""
        return self._child.pid if self._child is not None else None

    async def close(self) -> None:
        """End the process; a round that runs is resumed by the next one."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            await child.close()
