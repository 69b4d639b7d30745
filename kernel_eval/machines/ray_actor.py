"""The Ray actor that judges on one device of a cluster's machine.

Invariants: a job id is judged once, however often it is requested; the actor's processes end with the actor. The actor
process imports neither torch nor a candidate.
"""

from __future__ import annotations

import asyncio
import platform
from importlib.metadata import version
from typing import Any

import msgspec

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.ipc import framing
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.machines.gpu_local import machine_for
from weir.kernel_eval.machines.job_table import JobTable
from weir.kernel_eval.sandbox import containment

_MAX_ENDED_JOBS = 256
_encode = msgspec.msgpack.Encoder().encode


class DeviceActor:
    """One device. The constructor raises `SandboxUnavailable` if this machine does not reach `min_sandbox`."""

    def __init__(self, config_json: str) -> None:
        config = KernelEvalConfig.model_validate_json(config_json)
        self._machine = machine_for(config, containment.choose_level(config.sandbox, config.min_sandbox))
        self._jobs: JobTable[bytes] = JobTable(_MAX_ENDED_JOBS)

    async def start(self) -> tuple[str, str]:
        """Start the processes. Returns the machine's name, and its version of Weir."""
        await self._machine.start()
        return platform.node(), version("weir-rl")

    async def evaluate(self, job_id: str, job: bytes) -> bytes:
        """Judge a `Job`; both it and the returned `Judged` are msgpack."""
        known = self._jobs.find(job_id)
        work = asyncio.create_task(self._judge(job)) if known is None else known.work
        if known is None:
            self._jobs.keep(job_id, work)
        return await asyncio.shield(work)

    async def cancel(self, job_id: str) -> None:
        """Cancel a job that nobody waits for any more."""
        if (entry := self._jobs.pop(job_id)) is not None:
            entry.work.cancel()

    async def health(self) -> dict[str, Any]:
        """The health of this device."""
        return {**self._machine.health(), "starts": self._machine.num_starts}

    async def gpus(self) -> dict[str, Any]:
        """The status of the machine's GPUs."""
        return await self._machine.gpus()

    async def reset_devices(self) -> dict[str, Any]:
        """Reset the machine's GPUs that nobody uses."""
        return await self._machine.reset_devices()

    async def cleanup(self) -> dict[str, Any]:
        """End this device's idle judges, and remove the machine's leftover folders."""
        return await self._machine.cleanup()

    async def close(self) -> None:
        """End the processes."""
        await self._machine.close()

    async def _judge(self, job: bytes) -> bytes:
        return _encode(await self._machine.evaluate(framing.decode(job, Job)))
