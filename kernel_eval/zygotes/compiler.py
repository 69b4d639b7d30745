"""`python -m weir.kernel_eval.zygotes.compiler FD LEVEL TARGET`: forks builders, compile workers and collectors.

Separate from the zygote of workers, because Triton decides at import whether its own library is interpreted or
compiled.
"""

from __future__ import annotations

import os
import socket

from weir.kernel_eval.ipc.forkserver import BUILDER, COLLECTOR, Spawn
from weir.kernel_eval.ipc.framing import learn
from weir.kernel_eval.ipc.messages import Build, Collect, Compile
from weir.kernel_eval.sandbox import seccomp
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain.targets import TARGETS
from weir.kernel_eval.zygotes.zygote import Children, contained, scratch_folder, start

_COMPILE_WORKER = ""  # the default role


def prepare(level: SandboxLevel, target: str) -> Children:
    """Import everything that compile workers need."""
    os.environ.pop("TRITON_INTERPRET", None)
    import torch

    from weir.kernel_eval.compiler import (
        compile_worker,
        source_collector,  # noqa: F401 - imported once, for every child
    )

    torch.set_num_threads(1)
    compile_worker.prepare()
    with scratch_folder(level) as folder:
        compile_worker.warm_up(TARGETS[target], folder)
    learn(Build, Collect, Compile)
    seccomp_filter = seccomp.build()
    filters = dict.fromkeys((_COMPILE_WORKER, BUILDER, COLLECTOR), seccomp_filter)
    return Children(contained(level, filters, run_role), seccomp_filter is not None)


def run_role(spawn: Spawn, channel: socket.socket, folder: str) -> None:
    """Run the requested role, in a contained child."""
    from weir.kernel_eval.compiler import builder, compile_worker, source_collector

    roles = {_COMPILE_WORKER: compile_worker.run, BUILDER: builder.run, COLLECTOR: source_collector.run}
    roles[spawn.role](channel, folder)


if __name__ == "__main__":
    start(prepare)
