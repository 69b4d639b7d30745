"""The training slot: a process that trains on the devices of the members that train; started again when it dies.

One that stands still, and does not even report that it lives, is killed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from weir.cluster.live.world import RoundEnd
from weir.cluster.state import Settings
from weir.scripts.live.processes.processes import Order, Processes, ProcessFailed, Worker
from weir.scripts.live.reports import ALIVE

LOOK_S = 10.0
SILENT_LOOKS = 12  # in a row without a report, until it is killed: a machine under load may only be slow


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
        self._heard = False  # of the process that runs
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
            async for report in self._reports(worker):
                if "loaded" in report:
                    return
                self._on_step(report["step"], report["seconds"])
            if self._worker is worker:  # it was killed: the round starts another one
                self._worker = None
                await worker.close()

    async def train(
        self, known: int, members: Sequence[str], cores: Sequence[int], groups: Sequence[str], refilled: int = 0
    ) -> RoundEnd:
        """Finish what was left or, if there are groups, run a round of them; `known` is the newest known version.

        It runs where these members are, on these cores. `refilled`: how many groups without spread were replaced since
        the round before.
        """
        self._trains = True
        try:
            async with self._asking:
                return await self._train(members, cores, {"known": known, "groups": list(groups), "refilled": refilled})
        finally:
            self._trains = False

    async def _train(self, members: Sequence[str], cores: Sequence[int], request: dict[str, Any]) -> RoundEnd:
        if self._worker is not None and not await self._worker.is_at(members):
            await self._end_worker()
        if self._worker is None:
            try:
                self._worker = await self._processes.start(self._order, members)
                self._heard = False
            except ProcessFailed as error:
                return RoundEnd(failure=f"the training slot did not start: {error}")
        self._worker.bind(cores)
        self._worker.send(request)
        async for report in self._reports(self._worker):
            if (end := report.get("end")) is not None:
                return RoundEnd(**end)
            self._on_step(report["step"], report["seconds"])
        how, self._worker = await self._worker.close(), None
        return RoundEnd(failure=f"the training slot ended with {how}; its log is {self._order.log_path}")

    async def close(self) -> None:
        """End the process; a round that runs is resumed by the next one."""
        await self._end_worker()

    async def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            await worker.close()

    async def _reports(self, worker: Worker) -> AsyncIterator[Any]:
        """What a worker reports, until it ends; one that was heard of and reports nothing for long is killed."""
        reports = worker.reports()
        while (report := await self._next(worker, reports)) is not None:
            self._heard = True
            if report != ALIVE:
                yield report

    async def _next(self, worker: Worker, reports: AsyncIterator[Any]) -> Any:
        coming, silent = asyncio.ensure_future(_first_of(reports)), 0
        try:
            while not (await asyncio.wait([coming], timeout=LOOK_S))[0]:
                silent += self._heard  # until then it starts, which may take long
                if silent == SILENT_LOOKS:
                    worker.kill()
        except asyncio.CancelledError:
            coming.cancel()
            raise
        return coming.result()


async def _first_of(reports: AsyncIterator[Any]) -> Any:
    return await anext(reports, None)
