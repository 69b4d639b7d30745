"""The training slot's process stands still: it is killed, and its round is resumed by the next one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from weir.cluster.live.world import RoundEnd
from weir.cluster.state import Settings
from weir.scripts.live import slot as module
from weir.scripts.live.processes.child import Child
from weir.scripts.live.processes.processes import Order
from weir.scripts.live.slot import Slot

WORKER = """
import json, sys, time
from weir.scripts.live import reports as module
module.BEAT_S = 0.02
reports = module.Reports()
for line in sys.stdin:
    with reports.beating():
        reports.send({"step": "claimed", "seconds": 0.0})
        time.sleep(1.0)
    reports.send({"end": {"version": json.loads(line)["known"] + 1, "groups": ["a"], "left_out": []}})
"""


class Workers:
    """Processes that train for a second, and report that they live meanwhile."""

    def __init__(self, folder: Path) -> None:
        (folder / "worker_of_the_test.py").write_text(WORKER)
        self.started: list[Child] = []

    async def start(self, order: Order, members: Sequence[str]) -> Child:
        self.started.append(
            await Child.start(Order(module="worker_of_the_test", arguments=[], log_path=order.log_path))
        )
        return self.started[-1]


def test_a_slot_that_stands_still_is_killed_and_one_that_works_for_long_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.1)
    monkeypatch.setattr(module, "SILENT_LOOKS", 5)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    workers = Workers(tmp_path)

    def stop_the_first(step: str, _: float) -> None:
        assert step == "claimed"
        if len(workers.started) == 1:
            os.kill(workers.started[0].pid, signal.SIGSTOP)

    async def train_twice() -> tuple[RoundEnd, RoundEnd]:
        slot = Slot(None, Settings(batch=1), tmp_path / "slot.log", stop_the_first, workers)  # type: ignore[arg-type]
        ends = await slot.train(3, ["m"], [], ["a"]), await slot.train(3, ["m"], [], ["a"])
        await slot.close()
        return ends

    stopped, trained = asyncio.run(train_twice())
    assert stopped.failure is not None and "the training slot ended with status -9" in stopped.failure
    assert (trained.version, trained.groups) == (4, ["a"]), "it is silent for longer than that but for its beats"
