"""One device of a Ray cluster, as the server sees it: its actor, recreated when it is lost, and its health.

The state changes in `refresh`, which is called periodically, and when a job finds its device lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from importlib.metadata import version
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.machines.ray_actor import DeviceActor

_log = logging.getLogger(__name__)
_ANSWER_S = 10.0
_RETRY_S = 5.0  # between attempts to make an actor


class RayDevice:
    """A GPU, or the processors of a machine without GPUs."""

    def __init__(self, config: KernelEvalConfig, name: str, node_id: str, num_slots: int, *, uses_gpu: bool) -> None:
        self.name = name
        self.node_id = node_id
        self.machine = ""  # its own name; known when its actor has started
        self.num_slots = num_slots
        self.num_running = 0
        self.ready = False
        self.health: dict[str, Any] = {}
        self._config_json = config.model_copy(
            update={"concurrency": num_slots, "api_key": None, "ray": None, "gpus": None if uses_gpu else []}
        ).model_dump_json()
        self._uses_gpu = uses_gpu
        self._actor: Any = None
        self._starting: asyncio.Task[None] | None = None
        self._trouble = "waits for its processors, or starts"
        self._retry_at = 0.0

    @property
    def num_free(self) -> int:
        """Free slots."""
        return self.num_slots - self.num_running

    async def refresh(self) -> None:
        """Create the actor if there is none, else query its health. Does not wait for a start."""
        if self._actor is not None:
            await self._ask_health()
        elif self._starting is None and time.monotonic() >= self._retry_at:
            self._starting = asyncio.create_task(self._start())

    async def evaluate(self, job_id: str, job: bytes) -> bytes:
        """Judge a `Job`; both it and the returned `Judged` are msgpack. Raises `RayError`, also for a lost device."""
        actor = self._actor
        try:
            answer: bytes = await actor.evaluate.remote(job_id, job)
            return answer
        except asyncio.CancelledError:
            actor.cancel.remote(job_id)
            raise
        except RayActorError as error:
            self._lose(error)
            raise

    async def ask(self, method: str) -> dict[str, Any]:
        """Call one of the actor's other methods. Raises `RayError`."""
        result: dict[str, Any] = await getattr(self._actor, method).remote()
        return result

    def describe(self) -> dict[str, Any]:
        """Its entry in GET /health."""
        report = {"device": self.name, "ready": self.ready, "slots": self.num_slots, "running": self.num_running}
        if not self.ready:
            return {**report, "trouble": self._trouble}
        return {**self.health, **report, "machine": self.machine}

    async def close(self) -> None:
        """End the actor, and with it its processes."""
        self.ready = False
        if self._starting is not None:
            self._starting.cancel()
        if self._actor is not None:
            ray.kill(self._actor)
            self._actor = None

    async def _start(self) -> None:
        actor: Any = (
            ray.remote(DeviceActor)
            .options(
                num_cpus=self.num_slots,
                num_gpus=int(self._uses_gpu),
                max_concurrency=self.num_slots + 16,
                scheduling_strategy=NodeAffinitySchedulingStrategy(self.node_id, soft=False),
            )
            .remote(self._config_json)
        )
        try:
            self.machine, theirs = await actor.start.remote()
        except RayError as error:
            self._lose(error)
        else:
            if theirs == version("weir-rl"):
                self._actor = actor
            else:
                ray.kill(actor)
                self._fail(f"Weir {theirs} is installed there, and {version('weir-rl')} here; install the same")
        finally:
            self._starting = None

    async def _ask_health(self) -> None:
        try:
            self.health = await asyncio.wait_for(self._actor.health.remote(), _ANSWER_S)
        except RayError as error:
            self._lose(error)
        except TimeoutError:
            self._fail(f"has not answered for {_ANSWER_S:g} s")
        else:
            self._check_mode()

    def _check_mode(self) -> None:
        """Accept a device only in the expected mode: verdicts of interpreters and of GPUs are rewarded differently."""
        if self._uses_gpu and self.health["mode"] != "gpu":
            self._fail("Ray counts a GPU there that evaluations cannot use: see nvidia-smi and torch on that machine")
        else:
            self.ready = bool(self.health["ready"])
            self._trouble = "its processes start"

    def _lose(self, error: RayError) -> None:
        if not isinstance(error, ActorUnavailableError):  # an unavailable actor may answer again
            self._actor = None
        self._fail(str(error).strip().splitlines()[-1])

    def _fail(self, trouble: str) -> None:
        if trouble != self._trouble:
            _log.warning("%s: %s", self.name, trouble)
        self.ready, self._trouble = False, trouble
        self._retry_at = time.monotonic() + _RETRY_S
