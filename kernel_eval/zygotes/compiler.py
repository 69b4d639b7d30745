"""`python -m weir.kernel_eval.zygotes.compiler FD LEVEL TARGET`: forks recorders, builders, recompilers and collectors.

All children use Triton's compiler: a recorder (untrusted) and a recompiler for the front end, a builder for the rest.
For a server with a GPU there is also a player, which gives a CPU's second opinion.
"""

from __future__ import annotations

import socket

from weir.kernel_eval.ipc.forkserver import BUILDER, COLLECTOR, PLAYER, RECOMPILER, RECORDER, Spawn
from weir.kernel_eval.ipc.framing import learn
from weir.kernel_eval.ipc.messages import Build, Collect, Recompile, ToRecorder
from weir.kernel_eval.sandbox import seccomp
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain.targets import named
from weir.kernel_eval.zygotes.zygote import Children, contained, scratch_folder, start


def prepare(level: SandboxLevel, target: str) -> Children:
    """Import everything that the children need."""
    import torch

    from weir.kernel_eval.compiler import (
        builder,
        source_collector,  # noqa: F401 - imported once, for every child
        warm_up,
    )
    from weir.kernel_eval.recording import recompiler, record_worker  # noqa: F401

    torch.set_num_threads(1)
    builder.prepare(target)
    with scratch_folder(level) as folder:
        warm_up.warm_up(named(target), folder)
    learn(Build, Collect, Recompile, ToRecorder)
    seccomp_filter = seccomp.build()
    filters = dict.fromkeys((RECORDER, BUILDER, RECOMPILER, COLLECTOR, PLAYER), seccomp_filter)
    return Children(contained(level, filters, run_role), seccomp_filter is not None)


def run_role(spawn: Spawn, channel: socket.socket, folder: str) -> None:
    """Run the requested role, in a contained child."""
    from weir.kernel_eval.compiler import builder, source_collector
    from weir.kernel_eval.recording import recompiler, record_worker

    if spawn.role == RECORDER:
        record_worker.run(spawn.limits, channel, folder)
    elif spawn.role == PLAYER:
        from weir.kernel_eval.replay import player  # the second opinion alone needs it here

        player.run(spawn.limits, channel, folder)
    else:
        others = {BUILDER: builder.run, RECOMPILER: recompiler.run, COLLECTOR: source_collector.run}
        others[spawn.role](channel, folder)


if __name__ == "__main__":
    start(prepare)
