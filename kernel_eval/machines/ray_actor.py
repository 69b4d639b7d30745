"""What runs on each machine of a Ray cluster: one device of it, as an actor.

Invariants: a job id is judged once here, however often it is asked for; the actor's processes end with the actor. The
actor process imports neither torch nor a candidate.
"""

from __future__ import annotations

import asyncio
import platform
from collections import OrderedDict
from importlib.metadata import version
from typing import Any

import msgspec

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.ipc import framing
from weir.kernel_eval.judge.channel.job import Job
from weir.kernel_eval.machines.gpu_local import machine_for
from weir.kernel_eval.sandbox import containment

_JOBS_KEPT = 256
_encode = msgspec.msgpack.Encoder().encode


class DeviceActor:
    """One device. Raises `SandboxUnavailable` where this machine cannot contain what `min_sandbox` asks for."""

    def __init__(self, config_json: str) -> None:
        config = KernelEvalConfig.model_validate_json(config_json)
        self._machine = machine_for(config, containment.choose_level(config.sandbox, config.min_sandbox))
        self._jobs: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()

    async def start(self) -> tuple[str, str]:
        """Start the processes; the machine's name, and the version of Weir on it."""
        await self._machine.start()
        return platform.node(), version("weir-rl")

    async def evaluate(self, job_id: str, job: bytes) -> bytes:
        """Msgpack of a `Job` to that of a `Judged`."""
        if job_id not in self._jobs:
            self._jobs[job_id] = asyncio.create_task(self._judge(job))
            self._forget_old()
        return await asyncio.shield(self._jobs[job_id])

    async def cancel(self, job_id: str) -> None:
        """Nobody waits for this job any more."""
        if (work := self._jobs.pop(job_id, None)) is not None:
            work.cancel()

    async def health(self) -> dict[str, Any]:
        """Of this device."""
        return {**self._machine.health(), "starts": self._machine.num_starts}

    async def gpus(self) -> dict[str, Any]:
        """Those of the machine."""
        return await self._machine.gpus()

    async def reset_devices(self) -> dict[str, Any]:
        """Those of the machine that nobody uses."""
        return await self._machine.reset_devices()

    async def cleanup(self) -> dict[str, Any]:
        """Of this device's idle judges, and of the machine's folders."""
        return await self._machine.cleanup()

    async def close(self) -> None:
        """End the processes."""
        await self._machine.close()

    async def _judge(self, job: bytes) -> bytes:
        return _encode(await self._machine.evaluate(framing.decode(job, Job)))

    def _forget_old(self) -> None:
        done = [job_id for job_id, work in self._jobs.items() if work.done()]
        for job_id in done[: max(0, len(self._jobs) - _JOBS_KEPT)]:
            del self._jobs[job_id]
