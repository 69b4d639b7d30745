"""What members do is written to a catalog that is out for a while, in its order and once."""

from __future__ import annotations

import asyncio

from weir.cluster.live.world import Phase
from weir.scripts.live.recorder import Recorder
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.cluster.members import CLUSTER, MemberRow, phases
from weir.store.catalog.leases import held_lease
from weir.store.config import StoreConfig
from weir.store.errors import StoreUnavailable


def test_a_catalog_that_is_out_gets_all_phases_later(store: StoreConfig) -> None:
    catalog = Catalog.open(store)
    said: list[str] = []
    refusals = [StoreUnavailable("the disk is full")] * 3
    written: list[str] = []

    def write() -> None:
        if refusals:
            raise refusals.pop()
        written.append("written")

    async def record(recorder: Recorder) -> None:
        recorder.began("both", Phase.WAITS, "started", 0, {}, None)
        recorder._jobs.put_nowait(write)
        recorder.began("both", Phase.TRAIN, "sample_ready", 0, {"train": 1.0}, None)
        writing = asyncio.create_task(recorder.run())
        while len(phases(catalog)) < 2 and not writing.done():  # noqa: ASYNC110 (another thread writes them)
            await asyncio.sleep(0.01)
        assert written == ["written"], "in its order"
        refusals.extend([StoreUnavailable("the disk is full")] * 100_000)
        recorder._jobs.put_nowait(write)
        while len(said) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        refusals.clear()
        await recorder.flush()
        assert written == ["written"] * 2, "what was refused last is not left out"

    with held_lease(catalog, CLUSTER, "here", 30.0) as lease:
        recorder = Recorder(catalog, lease, 0.01, said.append)
        row = MemberRow(
            name="both", url=None, tags=["train"], kind="", memory_gb=None, train_priority=0.0, phase="waits"
        )
        recorder.take_over([row])
        asyncio.run(record(recorder))
    assert said == ["what members do is written later: the disk is full"] * 2
    assert [row.phase for row in phases(catalog)] == ["waits", "train"]
    catalog.close()
