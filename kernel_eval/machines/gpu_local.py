"""This machine with its GPUs: kernels run on them and are timed, one evaluation at a time on each.

Invariants: an evaluation has exclusive use of its GPU among all servers of this user (`device_lock.py`); a GPU that may
be broken is examined before anything else runs on it, and an evaluation that it may have affected is repeated once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib.metadata
from pathlib import Path
from typing import Any

import msgspec

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.gpu import health_probe, status
from weir.kernel_eval.gpu.device_lock import gpu_lock
from weir.kernel_eval.gpu.fleet import Gpu, GpuFleet, NoGpuLeft, State
from weir.kernel_eval.gpu.reset import GpuBusy
from weir.kernel_eval.gpu.status import GpuStatusError
from weir.kernel_eval.ipc.job import Job, Judged, Judgement
from weir.kernel_eval.machines.local import Machine
from weir.kernel_eval.machines.process_pool import Pool
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.timing import baselines

_ATTEMPTS = 2
_KERNEL_PHASES = frozenset({"init", "call", "replay", None})  # phases in which kernels may have run


class GpuMachine(Machine):
    """This machine with GPUs of one architecture."""

    def __init__(self, config: KernelEvalConfig, level: SandboxLevel, gpus: list[Gpu]) -> None:
        super().__init__(
            config, level, Pool(config.model_copy(update={"concurrency": len(gpus)}), level, gpus[0].target)
        )
        self._fleet = GpuFleet(gpus, health_probe.examine, self._reset)
        self._baselines = baselines.Baselines(Path(config.baselines) if config.baselines else None)
        self._num_waiting = 0

    @property
    def num_slots(self) -> int:
        """One for each GPU."""
        return len(self._fleet.gpus)

    @property
    def waiting(self) -> int:
        """Evaluations that wait for a GPU or for a judge."""
        return self._num_waiting + super().waiting

    async def close(self) -> None:
        """End every process. May be called twice."""
        await self._fleet.close()
        await super().close()

    async def evaluate(self, job: Job) -> Judged:
        """Judge on the next free GPU, and once more on any GPU if that one turned out to be unwell."""
        for _ in range(_ATTEMPTS):
            judgement, well = await self._evaluate_once(job)
            if well:
                break
        if not well and judgement.fault is not None and not judgement.fault.ours:
            judgement = msgspec.structs.replace(judgement, details={**judgement.details, "gpu": "unwell afterwards"})
        return Judged(judgement, self._level, "gpu")

    async def _evaluate_once(self, job: Job) -> tuple[Judgement, bool]:
        self._num_waiting += 1
        try:
            gpu = await self._fleet.take(job.preferred_gpu)
        except NoGpuLeft as error:
            return Judgement(stage=Stage.NOTHING, fault=Fault.GPU_UNHEALTHY, message=str(error)), True
        finally:
            self._num_waiting -= 1
        fault: Fault | None = Fault.SERVER_ERROR
        try:
            judgement = await self._judge_on(gpu, job)
            fault = judgement.fault if judgement.details.get("phase") in _KERNEL_PHASES else None
        finally:
            well = await asyncio.shield(self._fleet.give_back(gpu, fault))
        return judgement, well and judgement.fault is not Fault.GPU_UNHEALTHY

    async def _judge_on(self, gpu: Gpu, job: Job) -> Judgement:
        name = baselines.key(job.reference_src, _surroundings(gpu))
        limits = msgspec.structs.replace(job.limits, gpu=gpu.uuid, target=gpu.target)
        own = msgspec.structs.replace(job, limits=limits, baseline_us=self._baselines.find(name))
        with contextlib.ExitStack() as held:
            await asyncio.to_thread(held.enter_context, gpu_lock(gpu.uuid))
            judgement = await self._pool.evaluate(own)
        measured = judgement.details.get("timing", {}).get("reference", {}).get("median_ms")
        if measured is not None:
            self._baselines.note(name, 1e3 * measured)
        return judgement

    async def reset_gpu(self, index: int) -> None:
        """Reset a GPU that neither an evaluation nor another process uses, and examine it before it is used again.

        Raises `GpuBusy`, and `GpuStatusError` where the driver does not answer.
        """
        gpu = next((gpu for gpu in self._fleet.gpus if gpu.index == index), None)
        if gpu is None:
            return await super().reset_gpu(index)
        if not await self._fleet.withdraw(gpu):
            raise GpuBusy(f"GPU {index} is {self._fleet.states[gpu]}; wait until its evaluation has ended")
        try:
            self._pool.end_judges_of(gpu.uuid)
            await super().reset_gpu(index)
        finally:
            await self._fleet.give_back(gpu, Fault.GPU_UNHEALTHY)
        return None

    async def _reset(self, gpu: Gpu) -> bool:
        self._pool.end_judges_of(gpu.uuid)
        return await health_probe.reset(gpu)

    def health(self) -> dict[str, Any]:
        """As without GPUs, with the state of each."""
        gpus = {gpu.index: self._fleet.states[gpu] for gpu in self._fleet.gpus}
        any_left = any(state is not State.LEFT_OUT for state in gpus.values())
        report = super().health()
        target = self._fleet.gpus[0].target
        return {**report, "ready": report["ready"] and any_left, "mode": "gpu", "target": target, "gpus": gpus}

    async def gpus(self) -> dict[str, Any]:
        """The status of each GPU, and its state for evaluations."""
        states = {gpu.uuid: self._fleet.states[gpu] for gpu in self._fleet.gpus}
        statuses = await asyncio.to_thread(status.read)
        gpus = [
            {
                **msgspec.to_builtins(gpu),
                "healthy": gpu.healthy and states.get(gpu.uuid) is not State.LEFT_OUT,
                "evaluates": gpu.uuid in states,
                "state": states.get(gpu.uuid),
            }
            for gpu in statuses
        ]
        return {"gpus": gpus, "mode": "gpu"}


def machine_for(config: KernelEvalConfig, level: SandboxLevel) -> Machine:
    """This machine with the GPUs that pass a probe, or without GPUs. Blocks meanwhile. Raises `GpuStatusError`."""
    if config.gpus == [] or not _torch_has_cuda() or not status.read():
        return Machine(config, level)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:  # the caller may run an event loop in this thread
        gpus = thread.submit(asyncio.run, health_probe.find_all(config.gpus)).result()
    wanted = sorted(config.gpus or [])
    if wanted and [gpu.index for gpu in gpus] != wanted:
        healthy = [gpu.index for gpu in gpus]
        raise GpuStatusError(
            f"kernel_eval.gpus is {wanted}, but of these only {healthy} passed a health check: see nvidia-smi"
        )
    if not gpus:
        raise GpuStatusError(
            "the driver lists GPUs, but none passed a health check; see the lines above, or set kernel_eval.gpus = []"
        )
    alike = [gpu for gpu in gpus if gpu.target == gpus[0].target]
    return GpuMachine(config, level, alike)


def _torch_has_cuda() -> bool:
    return not importlib.metadata.version("torch").endswith("+cpu")


def _surroundings(gpu: Gpu) -> baselines.Surroundings:
    torch, triton = (importlib.metadata.version(name) for name in ("torch", "triton"))
    return baselines.Surroundings(gpu.name, gpu.driver, torch, triton, gpu.target)
