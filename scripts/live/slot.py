"""The training slot: a process that trains on the devices of the members that train; started again when it dies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from weir.cluster.live.world import RoundEnd
from weir.cluster.state import Settings
from weir.scripts.live.processes.processes import Order, Processes, ProcessFailed, Worker


class Slot:
    """One process at a time, for one round at a time."""

    def __init__(
        self,
        config_path: Path | None,
        rules: Settings,
        log_path: Path,
        on_step: Callable[[str], None],
        processes: Processes,
    ) -> None:
        given = str(config_path.absolute()) if config_path else ""
        staleness = str(math.ceil(rules.max_staleness))
        least, most = rules.batch, rules.batch
        if rules.takes_fewer:
            least, most = min(rules.least, rules.batch), rules.batch * (1 + math.ceil(rules.max_staleness))
        numbers = [str(most), str(least), staleness]
        module = "weir.scripts.live.slot_process"
        self._order = Order(module=module, arguments=[given, *numbers], log_path=log_path)
        self._on_step = on_step
        self._processes = processes
        self._worker: Worker | None = None

    async def train(self, known: int, cores: Sequence[int], groups: Sequence[str]) -> RoundEnd:
        """Finish what was left or, if there are groups, run a round of them; `known` is the newest known version."""
        if self._worker is None:
            try:
                self._worker = await self._processes.start(self._order)
            except ProcessFailed as error:
                return RoundEnd(failure=f"the training slot did not start: {error}")
        self._worker.bind(cores)
        self._worker.send({"known": known, "groups": list(groups)})
        async for report in self._worker.reports():
            if (end := report.get("end")) is not None:
                return RoundEnd(**end)
            self._on_step(report["step"])
        how, self._worker = await self._worker.close(), None
        return RoundEnd(failure=f"the training slot ended with {how}; its log is {self._order.log_path}")

    async def close(self) -> None:
        """End the process; a round that runs is resumed by the next one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            await worker.close()
