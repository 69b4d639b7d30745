"""What runs on a machine of a Ray cluster: actors that hold one process each.

Invariants: a process ends with its actor; the actor of an engine ends with it, so that Ray starts both again, maybe on
another machine.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray

from weir.cluster.config import ClusterMember
from weir.scripts.launch.servers import start
from weir.scripts.launch.settings import load_settings
from weir.scripts.live.processes.child import Child
from weir.scripts.live.processes.member_engine import MemberEngine
from weir.scripts.live.processes.processes import Order

DISTRIBUTION = "weir-rl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Home:
    """What an actor takes over of the controller: its folder, its settings by variables, and its version of Weir."""

    folder: str
    variables: Mapping[str, str]
    version: str

    @classmethod
    def of_this_process(cls) -> Home:
        """That of the controller."""
        variables = {name: value for name, value in os.environ.items() if name.startswith("WEIR_")}
        return cls(folder=str(Path.cwd()), variables=variables, version=version(DISTRIBUTION))

    def move_in(self) -> None:
        """Make this process one of the controller's. Raises RuntimeError where this machine does not fit."""
        if (here := version(DISTRIBUTION)) != self.version:
            raise RuntimeError(
                f"{platform.node()} has Weir {here}, and weir train is {self.version}: install the same there"
            )
        if not Path(self.folder).is_dir():
            raise RuntimeError(
                f"{platform.node()} has no folder {self.folder}: weir train needs its folder, the store and the model "
                "at the same paths on every machine"
            )
        os.chdir(self.folder)
        os.environ.update(self.variables)


class EngineActor:
    """The engine of a member."""

    def __init__(self, home: Home, config_path: Path | None, member: ClusterMember, host: str | None, retry_s: float):
        """`host` is the address to listen on; None: that of this machine in the cluster."""
        home.move_in()
        engine = MemberEngine(settings=load_settings(config_path), config_path=config_path, member=member)
        gpus = [int(number) for number in ray.get_gpu_ids()]
        cluster: Any = ray.util  # without types
        server, self._url = engine.server(host or cluster.get_node_ip_address(), gpus)
        self._process = start(server)
        threading.Thread(target=self._end_with_it, args=(time.monotonic() + retry_s,), daemon=True).start()

    def url(self) -> str:
        """Where it listens, or will once it has loaded."""
        return self._url

    def _end_with_it(self, least_s: float) -> None:
        self._process.wait()
        time.sleep(max(0.0, least_s - time.monotonic()))  # one that cannot start is not started without pause
        os._exit(1)  # to Ray a failure, after which it starts the actor again


class WorkerActor:
    """A process that answers requests by reports."""

    def __init__(self, home: Home) -> None:
        home.move_in()
        self._child: Child

    async def start(self, order: Order) -> None:
        """Start it."""
        self._child = await Child.start(order)

    async def send(self, request: Any) -> None:
        """Send a request."""
        self._child.send(request)

    async def bind(self, cores: Sequence[int]) -> None:
        """Bind it to cores of this machine."""
        self._child.bind(cores)

    async def reports(self) -> AsyncIterator[Any]:
        """What it reports, until it ends."""
        async for report in self._child.reports():
            yield report

    async def close(self) -> str:
        """Wait for its end; returns how it ended."""
        return await self._child.close()
