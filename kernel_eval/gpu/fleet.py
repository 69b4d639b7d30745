"""Assigns GPUs to evaluations, and takes a GPU that a kernel may have broken out of use until it works again.

    free ──take──▶ busy ──give back──▶ free
                     └─ suspicious ──▶ examined ──well──▶ free
                                          └─ unwell ──reset, examined again──▶ free, or left out for a while

Invariants: a GPU has one evaluation at a time; after a fault that the device may have caused, nothing runs on it until
a separate process has examined it; while a GPU is left out, evaluations wait for the others, and if all are left out,
`take` raises.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from weir.kernel_eval.protocol import Fault

_log = logging.getLogger(__name__)
LEFT_OUT_S = 60.0  # until it is examined again
# faults after which the GPU may fail in the next evaluation
SUSPICIOUS = frozenset(
    {
        *(Fault.ILLEGAL_ACCESS, Fault.MISALIGNED, Fault.DEVICE_ASSERT, Fault.LAUNCH_FAILURE, Fault.SEGFAULT),
        *(Fault.TIMEOUT, Fault.KILLED, Fault.HOST_OOM_KILLED, Fault.OUT_OF_MEMORY),
        *(Fault.EARLY_EXIT, Fault.SERVER_ERROR, Fault.GPU_UNHEALTHY),
    }
)


class State(enum.StrEnum):
    """The state of one GPU."""

    FREE = "free"
    BUSY = "busy"
    EXAMINED = "examined"
    LEFT_OUT = "left_out"


class Gpu(msgspec.Struct, frozen=True):
    """One GPU of this machine, as the driver names it, and the architecture to compile for."""

    index: int
    uuid: str
    name: str
    driver: str
    target: str


class NoGpuLeft(Exception):
    """Every GPU is left out."""


Step = Callable[[Gpu], Awaitable[bool]]


class GpuFleet:
    """The GPUs of one server. `examine` and `reset` return whether the GPU is well; neither raises."""

    def __init__(self, gpus: list[Gpu], examine: Step, reset: Step, left_out_s: float = LEFT_OUT_S) -> None:
        self.gpus = gpus
        self.states = dict.fromkeys(gpus, State.FREE)
        self._examine = examine
        self._reset = reset
        self._left_out_s = left_out_s
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, preferred: int | None = None) -> Gpu:
        """Wait for a free GPU, the preferred one (by index) if it is free. Raises `NoGpuLeft` if all are left out."""
        async with self._changed:
            while True:
                free = [gpu for gpu in self.gpus if self.states[gpu] is State.FREE]
                if free:
                    gpu = next((gpu for gpu in free if gpu.index == preferred), free[0])
                    self.states[gpu] = State.BUSY
                    return gpu
                if all(state is State.LEFT_OUT for state in self.states.values()):
                    raise NoGpuLeft("every GPU is left out: none passes its health check; see GET /gpu_status")
                await self._changed.wait()

    async def withdraw(self, gpu: Gpu) -> bool:
        """Take this GPU out of use if it is free; returns whether it was. It must be given back."""
        async with self._changed:
            if self.states[gpu] is not State.FREE:
                return False
            self.states[gpu] = State.BUSY
            return True

    async def give_back(self, gpu: Gpu, fault: Fault | None) -> bool:
        """Return a GPU, with the fault of its evaluation. Returns whether it is well."""
        if fault not in SUSPICIOUS:
            await self._become(gpu, State.FREE)
            return True
        await self._become(gpu, State.EXAMINED)
        well = await self._examine(gpu)
        if well:
            await self._become(gpu, State.FREE)
        else:
            self._start(self._repair(gpu))
        return well

    async def close(self) -> None:
        """Stop repairing GPUs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repair(self, gpu: Gpu) -> None:
        """Reset and examine a GPU, and leave it out for a while, until it is well."""
        while not (await self._reset(gpu) and await self._examine(gpu)) and not await self._is_well_later(gpu):
            pass
        await self._become(gpu, State.FREE)

    async def _is_well_later(self, gpu: Gpu) -> bool:
        _log.error("GPU %d (%s) is left out: it fails its health check", gpu.index, gpu.uuid)
        await self._become(gpu, State.LEFT_OUT)
        await asyncio.sleep(self._left_out_s)
        return await self._examine(gpu)

    async def _become(self, gpu: Gpu, state: State) -> None:
        async with self._changed:
            self.states[gpu] = state
            self._changed.notify_all()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
