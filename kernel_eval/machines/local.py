"""One machine that judges: its pool, its sandbox and its GPUs, and what operators ask of them.

A server holds `Machines`: this machine alone (`Machine`), or those of a Ray cluster (ray_machines.py). Not here: which
requests are evaluated (evaluating.py), HTTP (server.py).
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.errors import NoSuchGpu
from weir.kernel_eval.gpu import nvidia_smi
from weir.kernel_eval.judge.channel.job import Job, Judged
from weir.kernel_eval.machines.cleanup import remove_leftovers
from weir.kernel_eval.machines.process_pool import Pool
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain import native_compilers


class Machines(Protocol):
    """Where evaluations run. What is asked of GPUs raises `GpuStatusError`, `GpuBusy` and `NoSuchGpu`."""

    @property
    def num_slots(self) -> int:
        """Evaluations at a time, now."""

    @property
    def waiting(self) -> int:
        """Evaluations that wait for a slot."""

    @property
    def running(self) -> int:
        """Evaluations under way."""

    @property
    def num_starts(self) -> int:
        """Starts of zygotes and judges."""

    async def start(self) -> None:
        """Begin to make ready; evaluations wait until something is."""

    async def close(self) -> None:
        """End every process. May be called twice."""

    async def evaluate(self, job: Job) -> Judged:
        """Wait for a slot, then judge. Cancelling it ends the evaluation."""

    def health(self) -> dict[str, Any]:
        """For GET /health; `ready` says whether evaluations are taken."""

    async def gpus(self) -> dict[str, Any]:
        """For GET /gpu_status."""

    async def reset_gpu(self, index: int) -> None:
        """Reset one GPU that nobody uses."""

    async def reset_devices(self) -> dict[str, Any]:
        """Reset every GPU that nobody uses; name those in use, and those that cannot be reset."""

    async def cleanup(self) -> dict[str, Any]:
        """End judges that have nothing to do, remove folders of servers that are gone."""


class Machine:
    """This machine."""

    def __init__(self, config: KernelEvalConfig, level: SandboxLevel, pool: Pool | None = None) -> None:
        self._config = config
        self._level = level
        self._pool = pool or Pool(config, level)

    @property
    def num_slots(self) -> int:
        """As configured."""
        return self._config.num_slots

    @property
    def waiting(self) -> int:
        """Of the pool."""
        return self._pool.waiting

    @property
    def running(self) -> int:
        """Of the pool."""
        return self._pool.running

    @property
    def num_starts(self) -> int:
        """Of all forkservers."""
        return sum(server.num_starts for server in self._pool.forkservers)

    async def start(self) -> None:
        """Start the forkservers."""
        self._pool.start()

    async def close(self) -> None:
        """End every process. May be called twice."""
        await self._pool.close()

    async def evaluate(self, job: Job) -> Judged:
        """Judge in the pool."""
        return Judged(await self._pool.evaluate(job), self._level)

    def health(self) -> dict[str, Any]:
        """The sandbox, the mode, the processes and the queue."""
        zygote = self._pool.zygote.ready
        return {
            "ready": all(server.is_up for server in self._pool.forkservers),
            "sandbox": self._level,
            "seccomp": bool(zygote and zygote.seccomp),
            "own_network": bool(zygote and zygote.own_network),
            "mode": "interpreter",
            "backends": ["triton", *native_compilers.available()],
            "target": self._config.target,
            "slots": self.num_slots,
            "running": self.running,
            "queue": self.waiting,
            "zygotes": [server.describe() for server in self._pool.forkservers],
        }

    async def gpus(self) -> dict[str, Any]:
        """The GPUs of this machine, and that evaluations use none of them."""
        found = await asyncio.to_thread(nvidia_smi.read)
        gpus = [{**msgspec.to_builtins(gpu), "healthy": gpu.healthy, "evaluates": False} for gpu in found]
        return {"gpus": gpus, "mode": "interpreter"}

    async def reset_gpu(self, index: int) -> None:
        """Reset one GPU that nobody uses."""
        gpu = await asyncio.to_thread(nvidia_smi.find, index)
        if gpu is None:
            raise NoSuchGpu(f"there is no GPU {index}; GET /gpu_status lists them")
        await asyncio.to_thread(nvidia_smi.reset, gpu)

    async def reset_devices(self) -> dict[str, Any]:
        """Those in use are named and left alone."""
        told: dict[str, list[Any]] = {"reset": [], "busy": [], "failed": []}
        for gpu in await asyncio.to_thread(nvidia_smi.read):
            try:
                await self.reset_gpu(gpu.index)
                told["reset"].append(gpu.index)
            except nvidia_smi.GpuBusy:
                told["busy"].append(gpu.index)
            except nvidia_smi.GpuStatusError as error:
                told["failed"].append({"gpu": gpu.index, "why": str(error)})
        return told

    async def cleanup(self) -> dict[str, Any]:
        """How many judges were ended, and the folders that were removed."""
        ended = self._pool.end_idle_judges()
        return {"judges_ended": ended, "folders_removed": await asyncio.to_thread(remove_leftovers)}
