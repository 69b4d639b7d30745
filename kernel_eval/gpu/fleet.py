"""Which GPU an evaluation gets, and what becomes of one that a kernel may have broken.

    free ──take──▶ busy ──give back──▶ free
                     └─ suspicious ──▶ examined ──well──▶ free
                                          └─ unwell ──reset, examined again──▶ free, or left out for a while

Invariants: a GPU has one evaluation at a time; after anything that speaks of the device, nothing runs on it until it
has been examined by a process of its own; while one is left out, evaluations wait for the others, and where all are,
they are told so. Not here: how a GPU is examined (`gpu_probe.py`) and reset (`gpu_reset.py`).
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
LEFT_OUT_S = 60.0  # until it is looked at again
# faults after which the next evaluation's kernels could be hurt
SUSPICIOUS = frozenset(
    {
        *(Fault.ILLEGAL_ACCESS, Fault.MISALIGNED, Fault.DEVICE_ASSERT, Fault.LAUNCH_FAILURE, Fault.SEGFAULT),
        *(Fault.TIMEOUT, Fault.KILLED, Fault.HOST_OOM_KILLED, Fault.OUT_OF_MEMORY),
        *(Fault.EARLY_EXIT, Fault.SERVER_ERROR, Fault.GPU_UNHEALTHY),
    }
)


class State(enum.StrEnum):
    """Of one GPU."""

    FREE = "free"
    BUSY = "busy"
    EXAMINED = "examined"
    LEFT_OUT = "left_out"


class Gpu(msgspec.Struct, frozen=True):
    """One GPU of this machine, as nvidia-smi names it, and the architecture that it is compiled for."""

    index: int
    uuid: str
    name: str
    driver: str
    target: str


class NoGpuLeft(Exception):
    """All GPUs are left out."""


Step = Callable[[Gpu], Awaitable[bool]]


class GpuFleet:
    """The GPUs of one server. `examine` and `reset` say whether the GPU is well afterwards; neither raises."""

    def __init__(self, gpus: list[Gpu], examine: Step, reset: Step, left_out_s: float = LEFT_OUT_S) -> None:
        self.gpus = gpus
        self.states = dict.fromkeys(gpus, State.FREE)
        self._examine = examine
        self._reset = reset
        self._left_out_s = left_out_s
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, preferred: int | None = None) -> Gpu:
        """Wait for a GPU; the preferred one (by index) where it is free. Raises `NoGpuLeft` where there is none."""
        async with self._changed:
            while True:
                free = [gpu for gpu in self.gpus if self.states[gpu] is State.FREE]
                if free:
                    gpu = next((gpu for gpu in free if gpu.index == preferred), free[0])
                    self.states[gpu] = State.BUSY
                    return gpu
                if all(state is State.LEFT_OUT for state in self.states.values()):
                    raise NoGpuLeft("every GPU is left out: none computes what it should; see GET /gpu_status")
                await self._changed.wait()

    async def withdraw(self, gpu: Gpu) -> bool:
        """Take this one, for something else than an evaluation, if it is free; whether it was. It is given back too."""
        async with self._changed:
            if self.states[gpu] is not State.FREE:
                return False
            self.states[gpu] = State.BUSY
            return True

    async def give_back(self, gpu: Gpu, fault: Fault | None) -> bool:
        """The evaluation on it ended with this fault. Whether the GPU is well: else the fault may not be a kernel's."""
        if fault not in SUSPICIOUS:
            await self._become(gpu, State.FREE)
            return True
        await self._become(gpu, State.EXAMINED)
        well = await self._examine(gpu)
        if well:
            await self._become(gpu, State.FREE)
        else:
            self._start(self._mend(gpu))
        return well

    async def close(self) -> None:
        """Stop looking after GPUs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _mend(self, gpu: Gpu) -> None:
        """Until it is well: reset it, examine it, leave it out for a while."""
        while not (await self._reset(gpu) and await self._examine(gpu)) and not await self._is_well_later(gpu):
            pass
        await self._become(gpu, State.FREE)

    async def _is_well_later(self, gpu: Gpu) -> bool:
        _log.error("GPU %d (%s) is left out: it does not compute what it should", gpu.index, gpu.uuid)
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
