"""GPUs that a kernel may have broken: examined by real processes, reset or left out, and used again when well."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import torch

from weir.kernel_eval.gpu import health_probe
from weir.kernel_eval.gpu.fleet import Gpu, GpuFleet, NoGpuLeft, State
from weir.kernel_eval.protocol import Fault

GPUS = [Gpu(index, f"GPU-{index}a", "NVIDIA H100", "580.95", "sm_90") for index in (0, 1)]
# stands for a device: a file per GPU says that it is broken, a probe of it is a process that reads the file
PROBE = "import sys, pathlib\nprint('{\"well\": %s}' % str(not pathlib.Path(sys.argv[1]).exists()).lower())\n"
DIES = "import os\nos.abort()\n"


def run(check: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(check())


class Rack:
    """Two devices that can be broken, and a fleet over them."""

    def __init__(self, folder: Path, *, resets: bool = True) -> None:
        self._folder = folder
        self._resets = resets
        self.num_resets = 0
        (folder / "probe.py").write_text(PROBE)
        self.fleet = GpuFleet(GPUS, self._examine, self._reset, left_out_s=0.01)

    def break_one(self, gpu: Gpu) -> None:
        (self._folder / gpu.uuid).write_text("broken")

    def repair(self, gpu: Gpu) -> None:
        (self._folder / gpu.uuid).unlink()

    async def _examine(self, gpu: Gpu) -> bool:
        return (await health_probe.run(gpu.uuid, (str(self._folder / "probe.py"), str(self._folder / gpu.uuid)))).well

    async def _reset(self, gpu: Gpu) -> bool:
        self.num_resets += 1
        if self._resets:
            self.repair(gpu)
        return self._resets


def test_each_gpu_has_one_evaluation_and_the_preferred_one_is_given_where_it_is_free(tmp_path: Path) -> None:
    async def check() -> None:
        fleet = Rack(tmp_path).fleet
        first = await fleet.take(preferred=1)
        second = await fleet.take(preferred=1)
        assert (first.index, second.index) == (1, 0)
        waiting = asyncio.create_task(fleet.take())
        assert await fleet.give_back(second, Fault.OUTPUT_MISMATCH)
        assert await waiting == second

    run(check)


def test_a_gpu_that_is_well_after_a_suspicious_fault_is_used_again(tmp_path: Path) -> None:
    async def check() -> None:
        rack = Rack(tmp_path)
        gpu = await rack.fleet.take()
        assert await rack.fleet.give_back(gpu, Fault.ILLEGAL_ACCESS)
        assert (rack.fleet.states[gpu], rack.num_resets) == (State.FREE, 0)

    run(check)


def test_a_broken_gpu_is_fenced_and_used_again_after_a_reset(tmp_path: Path) -> None:
    async def check() -> None:
        rack = Rack(tmp_path)
        gpu, other = await rack.fleet.take(0), await rack.fleet.take(1)
        rack.break_one(gpu)
        assert not await rack.fleet.give_back(gpu, Fault.LAUNCH_FAILURE)
        assert rack.fleet.states[gpu] is State.EXAMINED  # nobody gets it meanwhile
        assert await rack.fleet.take(0) == gpu
        assert (rack.num_resets, rack.fleet.states[other]) == (1, State.BUSY)
        await rack.fleet.close()

    run(check)


def test_a_gpu_that_cannot_be_reset_is_left_out_until_it_is_well(tmp_path: Path) -> None:
    async def check() -> None:
        rack = Rack(tmp_path, resets=False)
        gpu = await rack.fleet.take(0)
        rack.break_one(gpu)
        assert not await rack.fleet.give_back(gpu, Fault.TIMEOUT)
        assert (await rack.fleet.take(0)).index == 1
        rack.repair(gpu)
        assert await rack.fleet.take(0) == gpu
        await rack.fleet.close()

    run(check)


def test_where_all_gpus_are_left_out_evaluations_are_told_so(tmp_path: Path) -> None:
    async def check() -> None:
        rack = Rack(tmp_path, resets=False)
        rack.fleet._left_out_s = 1e6
        for gpu in [await rack.fleet.take(), await rack.fleet.take()]:
            rack.break_one(gpu)
            await rack.fleet.give_back(gpu, Fault.GPU_UNHEALTHY)
        with pytest.raises(NoGpuLeft):
            await rack.fleet.take()
        await rack.fleet.close()

    run(check)


def test_only_a_free_gpu_is_withdrawn_and_nobody_gets_it_meanwhile(tmp_path: Path) -> None:
    async def check() -> None:
        rack = Rack(tmp_path)
        busy, free = await rack.fleet.take(0), GPUS[1]
        assert not await rack.fleet.withdraw(busy)
        assert await rack.fleet.withdraw(free)
        waiting = asyncio.create_task(rack.fleet.take())
        assert await rack.fleet.give_back(free, Fault.GPU_UNHEALTHY)
        assert await waiting == free

    run(check)


def test_a_probe_that_dies_or_says_nothing_is_of_a_gpu_that_is_unwell(tmp_path: Path) -> None:
    async def check() -> None:
        (tmp_path / "dies.py").write_text(DIES)
        died = await health_probe.run("GPU-0a", (str(tmp_path / "dies.py"),))
        assert (died.well, died.why) == (False, "its probe ended with -6")

    run(check)


def test_the_probe_finds_what_torch_finds() -> None:
    async def check() -> None:
        found = await health_probe.run("0")
        assert found.well == torch.cuda.is_available(), (found, sys.executable)

    run(check)
