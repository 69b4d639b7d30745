"""Where Ray runs engines and the training slot: two machines of a cluster, as raylets of this one; one is lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from ray.cluster_utils import Cluster as Machines

from weir.scripts.launch.settings import load_settings
from weir.scripts.live.processes.processes import Engine, Order, ProcessFailed, Worker
from weir.scripts.live.processes.ray_cluster import RayProcesses

WORKER = """
import json
import os
import sys
for line in sys.stdin:
    print(json.dumps(os.getppid()), flush=True)
"""
ENGINE = """#!/bin/sh
[ "$1" = -c ] && echo 0.5.23 && exit
exec sleep 1000
"""
SMALL = {"include_dashboard": False, "object_store_memory": 1 << 27}
MACHINE = {"num_cpus": 2, **SMALL}  # with room for the member b


@pytest.fixture
def machines() -> Iterator[Machines]:
    """The controller's own, with room for the member a, and another one."""
    head = {"num_cpus": 1, "_system_config": {"health_check_period_ms": 500}, **SMALL}
    started = Machines(initialize_head=True, head_node_args=head)
    started.add_node(**MACHINE)
    yield started
    started.shutdown()


def ray_processes(folder: Path, address: str) -> RayProcesses:
    """Of two members, whose engines are scripts."""
    (folder / "worker_of_the_test.py").write_text(WORKER)
    (folder / "python").write_text(ENGINE)
    (folder / "python").chmod(0o755)
    (folder / "model").mkdir()
    (folder / "weir.toml").write_text(f"""
[store]
root = "store"
[model]
path = "model"
[engine]
kind = "sglang"
python = "{folder / "python"}"
[cluster]
processes = "ray"
ray_address = "{address}"
[[cluster.members]]
name = "a"
[[cluster.members]]
name = "b"
cpus = 2
train_priority = 1
""")
    settings = load_settings(folder / "weir.toml")
    members = {member.name: member for member in settings.cluster.members}
    return RayProcesses(folder / "weir.toml", settings, members)


def raylet_of(process: psutil.Process) -> psutil.Process:
    return next(parent for parent in process.parents() if "raylet" in parent.name())


async def asked(worker: Worker) -> psutil.Process:
    """The actor whose child the worker is."""
    worker.send({})
    return psutil.Process(await anext(worker.reports()))


async def url_of(engine: Engine) -> str:
    while (url := await engine.url()) is None:  # noqa: ASYNC110 (Ray is asked anew)
        await asyncio.sleep(0.1)
    return url


async def failure_of(engine: Engine) -> str:
    with pytest.raises(ProcessFailed) as failed:
        while True:
            await engine.url()
            await asyncio.sleep(0.1)
    return str(failed.value)


def test_on_a_lost_machine_nothing_stays_and_what_has_room_elsewhere_moves_there(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    processes = ray_processes(tmp_path, machines.address)
    processes.open()
    asyncio.run(lose_a_machine(machines, processes, tmp_path / "slot.log"))


async def lose_a_machine(machines: Machines, processes: RayProcesses, log: Path) -> None:
    order = Order(module="worker_of_the_test", arguments=[], log_path=log)

    async def run(members: Sequence[str]) -> tuple[Worker, psutil.Process]:
        worker = await processes.start(order, members)
        return worker, raylet_of(await asked(worker))

    slot, lost = await run(["a", "b"])
    assert await slot.is_at(["b"]) and not await slot.is_at(["a"]), "b trains first"
    engine = processes.engine("b")
    url = await url_of(engine)

    for process in (lost, *lost.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    assert [report async for report in slot.reports()] == []
    assert "its actor" in await slot.close()
    assert "no room for b: it needs 2 CPU, 0 GPU, and of all its 1 CPU, 0 GPU there are" in await failure_of(engine)
    beside, left = await run(["a", "b"])
    assert left != lost and await beside.is_at(["a"]), "b has no machine"

    machines.add_node(**MACHINE)
    assert "or its machine was lost" in await failure_of(engine)
    assert await url_of(engine) != url
    slot, joined = await run(["a", "b"])
    assert joined not in (lost, left) and await slot.is_at(["b"])
    for worker in (beside, slot):
        worker.kill()
    await engine.close()
    await processes.close()
