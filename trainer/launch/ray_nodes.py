"""Further machines by Ray: a process beside the first machine's agent, which holds an actor on each of them.

Ray chooses the machines: one actor on each, with the GPUs of its ranks, none on the first. Invariant: an actor runs one
attempt (`agent.run_node`) and ends with it, with this process, or with its machine; the ranks there end with the actor.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weir.trainer.errors import TrainerError
from weir.trainer.launch.agent import run_node
from weir.trainer.settings.launch import LaunchConfig

MODULE = "weir.trainer.launch.ray_nodes"
CONNECT_S = 10.0
PORTS = range(20_000, 30_000)  # below those of outgoing connections


def met_by_ray(launch: LaunchConfig) -> LaunchConfig:
    """The settings with a rendezvous at this machine: by its address towards the cluster, at ports that are free.

    Raises `TrainerError` where nothing listens at the cluster's address.
    """
    host, _, port = str(launch.ray_address).rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as connection:
            own = connection.getsockname()[0]
    except OSError as error:
        raise TrainerError(
            f"no Ray cluster at trainer.launch.ray_address = {launch.ray_address} ({error}); start one with "
            "ray start --head"
        ) from error
    first = _free_ports(own)
    return launch.model_copy(update={"rendezvous": f"[{own}]:{first}" if ":" in own else f"{own}:{first}"})


def _free_ports(host: str) -> int:
    """The first of two ports in a row that no outgoing connection takes: the second is bound late."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in random.sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError):
            for each in (port, port + 1):
                socket.create_server((host, each), family=family).close()
            return port
    raise TrainerError(f"no two ports in a row are free between {PORTS.start} and {PORTS.stop}: set a rendezvous")


def nodes_command(launch: LaunchConfig, *, processes: int, device: str) -> list[str]:
    """The command line of the process that starts all further machines, and ends when their ranks have."""
    order = {"launch": launch.model_dump(), "processes": processes, "device": device}
    return [sys.executable, "-m", MODULE, json.dumps(order)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What one machine is asked to do, in the folder of the first one."""

    number: int
    processes: int
    launch: LaunchConfig
    device: str
    folder: str

    def run(self) -> int:
        """Run the ranks of one attempt; the status of their agent. Raises RuntimeError where the folder is missing."""
        if not Path(self.folder).is_dir():
            raise RuntimeError(
                f"{platform.node()} has no folder {self.folder}: ranks need the folder of `weir round`, the store and "
                "the model at the same paths on every machine"
            )
        os.chdir(self.folder)
        return run_node(
            self.number,
            processes=self.processes,
            launch=self.launch,
            device=self.device,
            once=True,
            say=lambda text: print(f"machine {self.number}, {platform.node()}: {text}", flush=True),
        )


def run(launch: LaunchConfig, processes: int, device: str) -> int:
    """Have the cluster run the ranks of all further machines; the first status that is not 0.

    Raises `TrainerError` where the cluster has no room, or loses a machine.
    """
    import ray
    from ray.exceptions import RayError
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    cluster: Any = ray  # without types
    variables = {name: value for name, value in os.environ.items() if name.startswith(("WEIR_", "PYTHONPATH"))}
    try:
        cluster.init(address=launch.ray_address, configure_logging=False, runtime_env={"env_vars": variables})
        bundles = _bundles(launch, processes // launch.nodes, device, own=cluster.util.get_node_ip_address())
        _require_machines(cluster, bundles[1], launch.nodes - 1)
        group = placement_group(bundles, strategy="STRICT_SPREAD")
        if not group.wait(launch.timeout_s / 2):  # the first machine's own limit says less
            raise TrainerError(
                f"the Ray cluster has no {launch.nodes - 1} further machines with {_words(bundles[1])} free each; of "
                f"its {_words(cluster.cluster_resources())} there are free {_words(cluster.available_resources())}"
            )
        actor = cluster.remote(_Actor)
        statuses = []
        for number in range(1, launch.nodes):
            own = bundles[number]
            place = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=number)
            options = {"num_cpus": own["CPU"], "num_gpus": own.get("GPU", 0), "scheduling_strategy": place}
            node = Node(number=number, processes=processes, launch=launch, device=device, folder=str(Path.cwd()))
            statuses.append(actor.options(**options).remote(node).run.remote())
        return next((status for status in cluster.get(statuses) if status), 0)
    except (RayError, ConnectionError, ValueError) as error:
        raise TrainerError(f"trainer.launch.by = 'ray': {str(error).strip().splitlines()[-1]}") from error


class _Actor:
    """A machine's part of an attempt; its ranks' agent ends with this process."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def run(self) -> int:
        """As `Node.run`."""
        return self._node.run()


def _bundles(launch: LaunchConfig, ranks: int, device: str, *, own: str) -> list[dict[str, float]]:
    """What each machine has to have free; of the first, which trains already, only that it is this one."""
    needs = {"CPU": 1.0}
    if device == "cuda" or (device == "auto" and _has_gpu()):
        needs["GPU"] = float(ranks)
    return [{f"node:{own}": 0.001}, *[needs] * (launch.nodes - 1)]


def _require_machines(cluster: Any, needs: dict[str, float], count: int) -> None:
    """Raise `TrainerError` where the cluster has too few other machines of that size, also when they do nothing."""
    here = cluster.get_runtime_context().get_node_id()
    others = [node["Resources"] for node in cluster.nodes() if node["Alive"] and node["NodeID"] != here]
    able = sum(all(has.get(kind, 0) >= least for kind, least in needs.items()) for has in others)
    if able < count:
        raise TrainerError(
            f"the Ray cluster has {able} machines with {_words(needs)} besides this one, and trainer.launch.nodes = "
            f"{count + 1} needs {count}: add machines (ray start --address), or lower nodes"
        )


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _words(resources: dict[str, float]) -> str:
    return ", ".join(f"{resources[kind]:g} {kind}" for kind in ("CPU", "GPU") if kind in resources)


def main(arguments: Sequence[str]) -> int:
    """Run what `nodes_command` says."""
    order = json.loads(arguments[0])
    try:
        return run(LaunchConfig(**order["launch"]), order["processes"], order["device"])
    except TrainerError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    from weir.trainer.launch import ray_nodes  # whose classes other machines know

    sys.exit(ray_nodes.main(sys.argv[1:]))
