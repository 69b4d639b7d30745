"""`python -m weir.kernel_eval.zygotes.player FD LEVEL`: forks players, with torch and the interpreter of TTIR."""

from __future__ import annotations

import socket

from weir.kernel_eval.ipc.forkserver import Spawn
from weir.kernel_eval.ipc.framing import learn
from weir.kernel_eval.ipc.messages import ToPlayer
from weir.kernel_eval.sandbox import seccomp
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.zygotes.zygote import Children, contained, start


def prepare(level: SandboxLevel) -> Children:
    """Import everything that a player needs."""
    import torch

    from weir.kernel_eval.replay import player as _player  # noqa: F401 - imported once, for every player
    from weir.kernel_eval.replay.warm_up import warm_up

    torch.set_num_threads(1)
    warm_up()
    learn(ToPlayer)
    seccomp_filter = seccomp.build()
    return Children(contained(level, {"": seccomp_filter}, run_player), seccomp_filter is not None)


def run_player(spawn: Spawn, channel: socket.socket, folder: str) -> None:
    """Run a player in a contained child."""
    from weir.kernel_eval.replay import player

    player.run(spawn.limits, channel, folder)


if __name__ == "__main__":
    start(prepare)
