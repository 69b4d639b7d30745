"""Machines of a training run, over loopback of this one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from weir.scripts.launch.servers import free_ports_in_row
from weir.trainer.learner.distributed import Ranks
from weir.trainer.settings.launch import LaunchConfig


def launch_on_two(**more: Any) -> LaunchConfig:
    """Two machines that meet at two free ports in a row of this one."""
    first = free_ports_in_row(2)  # the second is bound late, and no outgoing connection may take it until then
    return LaunchConfig(nodes=2, rendezvous=f"127.0.0.1:{first}", **more)


@dataclass(frozen=True)
class Pids:
    """Asks for the ids of all ranks' processes."""

    def run(self, ranks: Ranks, held: dict[str, Any]) -> list[int]:
        """As `Request.run`."""
        return ranks.gather(os.getpid())
