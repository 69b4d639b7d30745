"""`python -m weir.kernel_eval.zygotes.compiler FD LEVEL TARGET`: forks recorders, builders, recompilers and collectors.

All children use Triton's compiler: a recorder (untrusted) and a recompiler for the front end, a builder for the rest.
"""

from __future__ import annotations

import socket

from weir.kernel_eval.ipc.forkserver import BUILDER, COLLECTOR, RECOMPILER, RECORDER, Spawn
from weir.kernel_eval.ipc.framing import learn
from weir.kernel_eval.ipc.messages import Build, Collect, Recompile, ToRecorder
from weir.kernel_eval.sandbox import seccomp
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain.targets import TARGETS
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
    builder.prepare()
    with scratch_folder(level) as folder:
        warm_up.warm_up(TARGETS[target], folder)
    learn(Build, Collect, Recompile, ToRecorder)
    seccomp_filter = seccomp.build()
    filters = dict.fromkeys((RECORDER, BUILDER, RECOMPILER, COLLECTOR), seccomp_filter)
    return Children(contained(level, filters, run_role), seccomp_filter is not None)


def run_role(spawn: Spawn, channel: socket.socket, folder: str) -> None:
    """Run the requested role, in a contained child."""
    from weir.kernel_eval.compiler import builder, source_collector
    from weir.kernel_eval.recording import recompiler, record_worker

    if spawn.role == RECORDER:
        record_worker.run(spawn.limits, channel, folder)
    else:
        others = {BUILDER: builder.run, RECOMPILER: recompiler.run, COLLECTOR: source_collector.run}
        others[spawn.role](channel, folder)


if __name__ == "__main__":
    start(prepare)
