"""The protocol of the machines that judge, and the one without a GPU: a process pool, its sandbox, operators' requests.

A server has one `Machines`: this machine (`Machine`), or those of a Ray cluster (`ray_cluster.py`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.errors import NoSuchGpu
from weir.kernel_eval.gpu import reset as gpu_reset
from weir.kernel_eval.gpu import status
from weir.kernel_eval.gpu.reset import GpuBusy
from weir.kernel_eval.gpu.status import GpuStatusError
from weir.kernel_eval.ipc.job import Job, Judged
from weir.kernel_eval.machines.cleanup import remove_leftovers
from weir.kernel_eval.machines.process_pool import Pool
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain import native_compilers


class Machines(Protocol):
    """Runs evaluations. The methods for GPUs raise `GpuStatusError`, `GpuBusy` and `NoSuchGpu`."""

    @property
    def num_slots(self) -> int:
        """How many evaluations can run at a time."""

    @property
    def waiting(self) -> int:
        """Evaluations that wait for a slot."""

    @property
    def running(self) -> int:
        """Evaluations that are running."""

    @property
    def num_starts(self) -> int:
        """Starts of zygotes and judges."""

    async def start(self) -> None:
        """Start processes or connections; evaluations wait until they are ready."""

    async def close(self) -> None:
        """End every process. May be called twice."""

    async def evaluate(self, job: Job) -> Judged:
        """Wait for a slot, then judge. Cancelling the call ends the evaluation."""

    def health(self) -> dict[str, Any]:
        """The body of GET /health; `ready` is true while evaluations are accepted."""

    async def gpus(self) -> dict[str, Any]:
        """The body of GET /gpu_status."""

    async def reset_gpu(self, index: int) -> None:
        """Reset one GPU that nobody uses. Raises `NoSuchGpu`, or `GpuBusy` where something uses it."""

    async def reset_devices(self) -> dict[str, Any]:
        """Reset every GPU that nobody uses. The report names those in use, and those that could not be reset."""

    async def cleanup(self) -> dict[str, Any]:
        """End idle judges, and remove the folders of servers that are gone."""


class Machine:
    """This machine, without its GPUs."""

    def __init__(self, config: KernelEvalConfig, level: SandboxLevel, pool: Pool | None = None) -> None:
        self._config = config
        self._level = level
        self._pool = pool or Pool(config, level)

    @property
    def num_slots(self) -> int:
        """The configured number of slots."""
        return self._config.num_slots

    @property
    def waiting(self) -> int:
        """Evaluations that wait in the pool."""
        return self._pool.waiting

    @property
    def running(self) -> int:
        """Evaluations that run in the pool."""
        return self._pool.running

    @property
    def num_starts(self) -> int:
        """Starts of all forkservers."""
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
        """The GPUs of this machine, none of which evaluations use."""
        statuses = await asyncio.to_thread(status.read)
        gpus = [{**msgspec.to_builtins(gpu), "healthy": gpu.healthy, "evaluates": False} for gpu in statuses]
        return {"gpus": gpus, "mode": "interpreter"}

    async def reset_gpu(self, index: int) -> None:
        """Reset one GPU that nobody uses. Raises `NoSuchGpu`, or `GpuBusy` where something uses it."""
        gpu = await asyncio.to_thread(status.find, index)
        if gpu is None:
            raise NoSuchGpu(f"there is no GPU {index}; GET /gpu_status lists them")
        await asyncio.to_thread(gpu_reset.reset, gpu)

    async def reset_devices(self) -> dict[str, Any]:
        """Reset every GPU that nobody uses; the others are listed in the report."""
        report: dict[str, list[Any]] = {"reset": [], "busy": [], "failed": []}
        for gpu in await asyncio.to_thread(status.read):
            try:
                await self.reset_gpu(gpu.index)
                report["reset"].append(gpu.index)
            except GpuBusy:
                report["busy"].append(gpu.index)
            except GpuStatusError as error:
                report["failed"].append({"gpu": gpu.index, "why": str(error)})
        return report

    async def cleanup(self) -> dict[str, Any]:
        """End idle judges and remove leftover folders. Returns the number of judges and the folders' names."""
        ended = self._pool.end_idle_judges()
        return {"judges_ended": ended, "folders_removed": await asyncio.to_thread(remove_leftovers)}
