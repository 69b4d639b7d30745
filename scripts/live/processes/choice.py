"""Who runs the processes of a run, by [cluster] processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from weir.cluster.config import ClusterMember
from weir.scripts.launch.settings import Settings
from weir.scripts.live.processes.local import LocalProcesses
from weir.scripts.live.processes.processes import Processes


def processes_of(settings: Settings, config_path: Path | None, members: Mapping[str, ClusterMember]) -> Processes:
    """This machine, or a Ray cluster. Raises `UsageError` without Ray, or without enough GPUs on this machine."""
    if settings.cluster.processes == "local":
        return LocalProcesses(settings, config_path, members)
    from weir.scripts.live.processes.ray_cluster import RayProcesses

    return RayProcesses(config_path, settings, members)
