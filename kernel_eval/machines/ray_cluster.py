"""The machines of a Ray cluster: an actor for each device, created and removed as machines join and leave.

Invariants: a job keeps its id in all attempts, and an actor judges an id once; the jobs of a lost device are retried on
another, and its loss is never a verdict; the actors end with the server; all verdicts are of one mode. A server whose
own node is gone rejoins the cluster; if the cluster's head is gone, Ray ends the server after a minute. In a cluster
with GPUs each GPU is a device, and machines without a GPU are not used; in one without, each machine is a device whose
slots are its processors.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Iterator
from typing import Any

import msgspec

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.errors import NoSuchGpu, RayUnavailable
from weir.kernel_eval.ipc import framing
from weir.kernel_eval.ipc.job import Job, Judged, Judgement
from weir.kernel_eval.machines.ray_address import check_reachable
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.sandbox.levels import SandboxLevel

try:
    import ray
    from ray.exceptions import RayError

    from weir.kernel_eval.machines.ray_device import RayDevice
except ImportError as error:
    raise RayUnavailable("Ray is not installed here: pip install 'weir-rl[ray]'") from error

_log = logging.getLogger(__name__)
_WATCH_S = 1.0
_ATTEMPTS = 4
_encode = msgspec.msgpack.Encoder().encode
_RAY_ERRORS = (OSError, ValueError, RuntimeError, RayError)  # raised by Ray's calls if a cluster fails
_Key = tuple[str, int, bool]  # node id, number of the device on the node, whether it is a GPU


class RayMachines:
    """All machines of a cluster with free resources."""

    def __init__(self, config: KernelEvalConfig, address: str) -> None:
        """Join the cluster; blocks. Raises `RayUnavailable`."""
        _join(address)
        self._config = config
        self._address = address
        self._devices: dict[_Key, RayDevice] = {}
        self._on_gpus = False
        self._changed = asyncio.Condition()
        self._watching: asyncio.Task[None] | None = None
        self.waiting = 0
        self.running = 0

    @property
    def num_slots(self) -> int:
        """Slots of the devices that are ready; at least 1, since callers divide by it."""
        return max(1, sum(device.num_slots for device in self._ready()))

    @property
    def num_starts(self) -> int:
        """Starts of all devices' forkservers."""
        return sum(device.health.get("starts", 0) for device in self._devices.values())

    async def start(self) -> None:
        """Start to watch the cluster for machines."""
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """End the actors, and leave the cluster."""
        if self._watching is None:
            return
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        self._watching = None
        await asyncio.gather(*(device.close() for device in self._devices.values()))
        self._devices.clear()
        await asyncio.to_thread(ray.shutdown)

    async def evaluate(self, job: Job) -> Judged:
        """Judge on the device with the most free slots. Waits while there is none."""
        job_id, payload, lost = uuid.uuid4().hex, _encode(job), ""
        for _ in range(_ATTEMPTS):
            device = await self._take()
            try:
                return framing.decode(await device.evaluate(job_id, payload), Judged)
            except RayError as error:
                lost = f"{device.name} was lost ({type(error).__name__})"
                _log.warning("%s; its job is retried", lost)
            finally:
                await self._give_back(device)
        judgement = Judgement(stage=Stage.NOTHING, fault=Fault.SERVER_ERROR, message=lost)
        return Judged(judgement, SandboxLevel.RLIMITS)

    def health(self) -> dict[str, Any]:
        """The health of the cluster; `sandbox` is the weakest level of its devices, `machines` lists them."""
        ready = self._ready()
        known = [device.health for device in ready if device.health]
        return {
            "ready": bool(ready),
            "ray": self._address,
            "sandbox": min((one["sandbox"] for one in known), key=list(SandboxLevel).index, default=None),
            "mode": self._mode,
            "backends": sorted(set.intersection(*(set(one["backends"]) for one in known))) if known else [],
            "target": self._config.target,
            "slots": sum(device.num_slots for device in ready),
            "running": self.running,
            "queue": self.waiting,
            "machines": [device.describe() for device in self._devices.values()],
        }

    async def gpus(self) -> dict[str, Any]:
        """The GPUs of every machine, with its name."""
        reports = await self._ask_each_machine("gpus")
        gpus = [{"machine": name, **gpu} for name, one in reports for gpu in one["gpus"]]
        return {"gpus": gpus, "mode": self._mode}

    async def reset_gpu(self, index: int) -> None:
        """Raises `NoSuchGpu`: the number exists on every machine."""
        raise NoSuchGpu(
            f"which machine's GPU {index}? On a Ray cluster use POST /reset_devices, which resets idle ones"
        )

    async def reset_devices(self) -> dict[str, Any]:
        """Reset the unused GPUs of every machine; the reports by the machines' names."""
        return {"machines": dict(await self._ask_each_machine("reset_devices"))}

    async def cleanup(self) -> dict[str, Any]:
        """Clean up every machine; the sum of their reports."""
        reports = await asyncio.gather(*(device.ask("cleanup") for device in self._ready()))
        return {
            "judges_ended": sum(one["judges_ended"] for one in reports),
            "folders_removed": [name for one in reports for name in one["folders_removed"]],
        }

    @property
    def _mode(self) -> str:
        return "gpu" if self._on_gpus else "interpreter"

    def _ready(self) -> list[RayDevice]:
        return [device for device in self._devices.values() if device.ready]

    async def _take(self) -> RayDevice:
        self.waiting += 1
        try:
            async with self._changed:
                while (device := max(self._ready(), key=lambda one: one.num_free, default=None)) is None or (
                    device.num_free < 1
                ):
                    await self._changed.wait()
                device.num_running += 1
        finally:
            self.waiting -= 1
        self.running += 1
        return device

    async def _give_back(self, device: RayDevice) -> None:
        device.num_running -= 1
        self.running -= 1
        async with self._changed:
            self._changed.notify_all()

    async def _watch(self) -> None:
        """Refresh the list of machines and their health, until cancelled."""
        while True:
            try:
                await self._refresh()
            except (*_RAY_ERRORS, RayUnavailable) as error:
                _log.warning("the Ray cluster does not answer: %s", error)
            await asyncio.sleep(_WATCH_S)

    async def _refresh(self) -> None:
        if not ray.is_initialized():
            await asyncio.to_thread(_join, self._address)
        nodes = [node for node in await asyncio.to_thread(ray.nodes) if node["Alive"]]
        if ray.get_runtime_context().get_node_id() not in [node["NodeID"] for node in nodes]:
            await self._leave()
            return
        self._on_gpus = self._config.gpus != [] and any(node["Resources"].get("GPU", 0) >= 1 for node in nodes)
        current = {key: device for node in nodes for key, device in self._devices_of(node)}
        for key in self._devices.keys() - current.keys():
            gone = self._devices.pop(key)
            _log.warning("%s has left the Ray cluster, or is not used beside GPUs", gone.name)
            await gone.close()
        self._devices.update({key: current[key] for key in current.keys() - self._devices.keys()})
        await asyncio.gather(*(device.refresh() for device in self._devices.values()))
        async with self._changed:
            self._changed.notify_all()

    async def _leave(self) -> None:
        """Leave the cluster, since the node of this process is gone with all its actors; the next refresh rejoins."""
        for device in self._devices.values():
            device.ready = False
        if self.running == 0:  # Ray reports the lost device to each job, but not after a shutdown
            _log.warning("this server's node of the Ray cluster is gone; it rejoins")
            self._devices.clear()
            await asyncio.to_thread(ray.shutdown)

    def _devices_of(self, node: dict[str, Any]) -> Iterator[tuple[_Key, RayDevice]]:
        num_cpus, num_gpus = (int(node["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
        slots = 1 if self._on_gpus else min(self._config.concurrency or num_cpus, num_cpus)
        for number in range(num_gpus if self._on_gpus else min(1, slots)):
            name = f"{node['NodeManagerHostname']}/{number}"
            key = (node["NodeID"], number, self._on_gpus)
            yield key, RayDevice(self._config, name, node["NodeID"], slots, uses_gpu=self._on_gpus)

    async def _ask_each_machine(self, method: str) -> list[tuple[str, dict[str, Any]]]:
        """Call a method of one ready device on each machine. Returns pairs of the machine's name and the result."""
        one_each = {device.node_id: device for device in self._ready()}
        calls: list[Awaitable[dict[str, Any]]] = [device.ask(method) for device in one_each.values()]
        return list(zip((device.machine for device in one_each.values()), await asyncio.gather(*calls), strict=True))


def _join(address: str) -> None:
    """Join the cluster. Blocks. Raises `RayUnavailable`."""
    check_reachable(address)
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except _RAY_ERRORS as error:
        raise RayUnavailable(f"no Ray cluster at {address!r}: {error}; start one with ray start --head") from error
