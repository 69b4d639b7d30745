"""Machines of a training run, over loopback of this one."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from weir.trainer.learner.distributed import Ranks
from weir.trainer.settings.launch import LaunchConfig


def launch_on_two(**more: Any) -> LaunchConfig:
    """Two machines that meet at two free ports in a row of this one."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
            with suppress(OSError, OverflowError), socket.create_server(("127.0.0.1", port + 1)):
                return LaunchConfig(nodes=2, rendezvous=f"127.0.0.1:{port}", **more)


@dataclass(frozen=True)
class Pids:
    """Asks for the ids of all ranks' processes."""

    def run(self, ranks: Ranks, held: dict[str, Any]) -> list[int]:
        """As `Request.run`."""
        return ranks.gather(os.getpid())
