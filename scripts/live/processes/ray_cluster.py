"""Processes of a Ray cluster: a placement group for each member, and an actor in it for each process.

Ray finds the machines, starts engines again that ended, and moves what a lost machine had; with the controller all
actors end. The training slot has its place beside the engine of the member that trains first, of those that train.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weir.cluster.config import ClusterMember
from weir.cluster.state import Tag
from weir.kernel_eval.errors import RayUnavailable
from weir.kernel_eval.machines.ray_address import check_reachable
from weir.scripts.launch.errors import CommandError, UsageError
from weir.scripts.launch.settings import Settings
from weir.scripts.live.processes.member_engine import MemberEngine
from weir.scripts.live.processes.processes import Order, ProcessFailed, Worker

try:
    import ray
    from ray.exceptions import ActorUnavailableError, RayActorError, RayError
    from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    from weir.scripts.live.processes.ray_actors import EngineActor, Home, WorkerActor
except ImportError as missing:
    raise UsageError(
        "cluster.processes = 'ray', and Ray is not installed here: pip install 'weir-rl[ray]'"
    ) from missing

PLACE_LIMIT_S = 60.0  # until a member has its place, or the run says why not
ANSWER_LIMIT_S = 10.0
OBJECTS_BYTES = 100 * 2**20  # of a cluster that is made here: messages only
SLOT = "the training slot"


class RayProcesses:
    """Actors of a cluster."""

    def __init__(self, config_path: Path | None, settings: Settings, members: Mapping[str, ClusterMember]) -> None:
        """`members` are those of the run, which others may join."""
        self._config_path = config_path.absolute() if config_path else None
        self._settings, self._config, self._members = settings, settings.cluster, members
        self._places: dict[str, PlacementGroup] = {}
        self._home = Home.of_this_process()

    def open(self) -> None:
        """Join the cluster, or make one of this machine; in the main thread, with which what Ray starts here ends.

        Raises `CommandError`.
        """
        on_term = signal.getsignal(signal.SIGTERM)
        try:
            if self._config.ray_address is not None:
                check_reachable(self._config.ray_address)
            ray.init(log_to_driver=False, configure_logging=False, **self._cluster())
        except (RayUnavailable, RayError, OSError, ValueError, RuntimeError) as error:
            raise CommandError(f"cluster.processes = 'ray': {error}") from error
        finally:
            signal.signal(signal.SIGTERM, on_term)  # Ray sets one that ends the process at once

    async def start(self, order: Order, members: Sequence[str]) -> Worker:
        """Start an actor with the process at the place of one of these members. Raises `ProcessFailed`."""
        place = await self._training_place(members)
        actor: Any = ray.remote(WorkerActor).options(**await self._options(place)).remote(self._home)
        try:
            await actor.start.remote(order)
        except RayError as error:
            raise ProcessFailed(_last_line(error)) from error
        return RayWorker(self, actor, place)

    def training_places(self, members: Sequence[str]) -> list[str]:
        """Where training on these members may run: at those without a URL, or at a place of its own, best first."""
        named = [self._members[name] for name in members]
        able = [m for m in named if Tag.TRAIN in m.tags and (m.url is None or m.name in self._places)]
        return [member.name for member in sorted(able, key=lambda member: -member.priority)] or [SLOT]

    def engine(self, member: str) -> RayEngine:
        """The engine of a member, started again as often as it ends."""
        engine = MemberEngine(settings=self._settings, config_path=self._config_path, member=self._members[member])
        return RayEngine(self, engine)

    async def start_engine(self, member: str) -> Any:
        """A new actor with the engine of a member. Raises `ProcessFailed` where there is no place for it."""
        options = await self._options(member) | {"max_restarts": -1, "num_gpus": self._members[member].gpus}
        host = "127.0.0.1" if self._config.ray_address is None else None
        arguments = (self._home, self._config_path, self._members[member], host, self._config.retry_s)
        return ray.remote(EngineActor).options(**options).remote(*arguments)

    async def has_machine(self, place: str) -> bool:
        """Whether a place is on a machine that lives, as far as Ray knows."""
        if (group := self._places.get(place)) is None:
            return False
        table = await asyncio.to_thread(placement_group_table, group)
        return bool(table["state"] == "CREATED")

    def no_room(self, place: str) -> ProcessFailed:
        """What is said of a place that no machine has."""
        cluster: Any = ray  # without types
        return ProcessFailed(
            f"the Ray cluster has no room for {place}: it needs {_words(self._needs(place))}, and of all its "
            f"{_words(cluster.cluster_resources())} there are free {_words(cluster.available_resources())}"
        )

    async def close(self) -> None:
        """Leave the cluster; one that was made here ends."""
        ray.shutdown()

    def _cluster(self) -> dict[str, Any]:
        """The arguments that join a cluster, or make one with room for all members."""
        if self._config.ray_address is not None:
            return {"address": self._config.ray_address}
        wanted = sum(self._needs(name)["CPU"] for name in {*self._members, SLOT})
        num_cpus = max(os.cpu_count() or 1, math.ceil(wanted))
        own = {"num_cpus": num_cpus, "include_dashboard": False, "object_store_memory": OBJECTS_BYTES}
        return own | {"address": "local"}  # without it, Ray joins one that runs here

    async def _training_place(self, members: Sequence[str]) -> str:
        """The best one whose machine lives, else one that had none yet."""
        places = self.training_places(members)
        for place in places:
            if await self.has_machine(place):
                return place
        return next((place for place in places if place not in self._places), places[0])

    def _needs(self, place: str) -> dict[str, float]:
        member = self._members.get(place)
        if member is None:
            return {"CPU": 1.0}
        return {"CPU": member.cpus} | ({"GPU": float(member.gpus)} if member.gpus else {})

    async def _options(self, place: str) -> dict[str, Any]:
        """What puts an actor into a place, once there is one. Raises `ProcessFailed`."""
        needs = self._needs(place)
        group = self._places.get(place)
        if group is None:
            group = self._places[place] = placement_group([needs])
        if not await asyncio.to_thread(group.wait, PLACE_LIMIT_S):
            raise self.no_room(place)
        strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=0)
        return {"num_cpus": 0, "scheduling_strategy": strategy}


class RayEngine:
    """An engine in an actor."""

    def __init__(self, processes: RayProcesses, engine: MemberEngine) -> None:
        self._processes, self._engine = processes, engine
        self._actor: Any = None
        self._url: str | None = None

    async def url(self) -> str | None:
        """Where it listens; None while Ray starts it. Raises `ProcessFailed` where Ray cannot, or had to once more."""
        if self._actor is None:
            self._actor = await self._processes.start_engine(self._engine.member.name)
        before = self._url
        try:
            self._url = str(await asyncio.wait_for(self._actor.url.remote(), ANSWER_LIMIT_S))
        except (ActorUnavailableError, TimeoutError) as error:
            if not await self._processes.has_machine(self._engine.member.name):
                raise self._processes.no_room(self._engine.member.name) from error
            return None
        except RayActorError as error:
            self._actor = None
            raise ProcessFailed(_last_line(error)) from error
        if before not in (None, self._url):
            raise ProcessFailed(f"it ended, or its machine was lost{self._engine.last_words()}")
        return self._url

    def kill(self) -> None:
        """Kill its actor, which Ray starts again."""
        if self._actor is not None:
            ray.kill(self._actor, no_restart=False)

    async def close(self) -> None:
        """End it."""
        if self._actor is not None:
            ray.kill(self._actor)


class RayWorker:
    """A process in an actor that is not started again: the controller must know of its end."""

    def __init__(self, processes: RayProcesses, actor: Any, place: str) -> None:
        self._processes, self._actor, self._place = processes, actor, place
        self._reports = actor.reports.remote()
        self._lost = ""

    def send(self, request: Any) -> None:
        """Send a request."""
        self._actor.send.remote(request)

    def bind(self, cores: Sequence[int]) -> None:
        """Bind it to cores of its machine."""
        self._actor.bind.remote(list(cores))

    async def reports(self) -> AsyncIterator[Any]:
        """What it reports, until it ends or its actor is lost."""
        try:
            async for report in self._reports:
                yield await report
        except RayError as error:
            self._lost = _last_line(error)

    async def close(self) -> str:
        """How it ended."""
        with contextlib.suppress(RayError):
            return str(await self._actor.close.remote())
        return f"its actor ({self._lost or 'which was killed'})"

    def kill(self) -> None:
        """Kill the actor, and so the process."""
        ray.kill(self._actor)

    async def is_at(self, members: Sequence[str]) -> bool:
        """Whether its place is of one of these members."""
        return self._place in self._processes.training_places(members)


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]


def _words(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{resources.get(kind, 0):g} {kind}" for kind in ("CPU", "GPU"))
