"""The training slot: a process that trains on the devices of the members that train; started again when it dies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
        on_step: Callable[[str, float], None],
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
        self._asking = asyncio.Lock()  # one request at a time
        self._trains = False
        self._loading: asyncio.Task[None] | None = None

    async def load_ahead(self) -> None:
        """Load what the next round begins with; nothing while a round runs, and before the first one."""
        if self._worker is None or self._trains:
            return
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._load_ahead(self._worker))
        await asyncio.shield(self._loading)  # who waits may be cancelled; its answer is read in any case

    async def _load_ahead(self, worker: Worker) -> None:
        async with self._asking:
            worker.send({"load_ahead": True})
            async for report in worker.reports():
                if "loaded" in report:
                    return
                self._on_step(report["step"], report["seconds"])
            if self._worker is worker:  # it was killed: the round starts another one
                self._worker = None
                await worker.close()

    async def train(self, known: int, cores: Sequence[int], groups: Sequence[str], refilled: int = 0) -> RoundEnd:
        """Finish what was left or, if there are groups, run a round of them; `known` is the newest known version.

        `refilled`: how many groups without spread were replaced since the round before.
        """
        self._trains = True
        try:
            async with self._asking:
                return await self._train(cores, {"known": known, "groups": list(groups), "refilled": refilled})
        finally:
            self._trains = False

    async def _train(self, cores: Sequence[int], request: dict[str, Any]) -> RoundEnd:
        if self._worker is None:
            try:
                self._worker = await self._processes.start(self._order)
            except ProcessFailed as error:
                return RoundEnd(failure=f"the training slot did not start: {error}")
        self._worker.bind(cores)
        self._worker.send(request)
        async for report in self._worker.reports():
            if (end := report.get("end")) is not None:
                return RoundEnd(**end)
            self._on_step(report["step"], report["seconds"])
        how, self._worker = await self._worker.close(), None
        return RoundEnd(failure=f"the training slot ended with {how}; its log is {self._order.log_path}")

    async def close(self) -> None:
        """End the process; a round that runs is resumed by the next one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            await worker.close()
