"""`python -m weir.kernel_eval.zygotes.compiler FD LEVEL TARGET`: forks builders, compile workers and collectors.

A process of its own beside the zygote of workers, because Triton decides at import whether its own library is
interpreted or compiled. Like that one it must stay single-threaded and hold nothing that a candidate may not see.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable

from weir.kernel_eval.ipc.forkserver import BUILDER, COLLECTOR, Forkserver, Ready, Spawn
from weir.kernel_eval.ipc.framing import learn, send
from weir.kernel_eval.ipc.messages import Build, Collect, Compile
from weir.kernel_eval.sandbox import containment, huge_pages, seccomp, syscalls
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain.targets import TARGETS


def main(fd: int, level: SandboxLevel, target: str) -> None:
    """Import what compile workers need, say so, and fork until the server is gone."""
    own_network = containment.isolate_zygote(level)
    syscalls.die_with_parent()
    os.environ.pop("TRITON_INTERPRET", None)
    import torch

    from weir.kernel_eval.compiler import (
        compile_worker,
        source_collector,  # noqa: F401 - once
    )

    torch.set_num_threads(1)
    compile_worker.prepare()
    own_tmp = containment.worker_tmp() if level is SandboxLevel.BUBBLEWRAP else tempfile.gettempdir()
    folder = tempfile.mkdtemp(dir=own_tmp)
    compile_worker.warm_up(TARGETS[target], folder)
    shutil.rmtree(folder)
    learn(Build, Collect, Compile)
    seccomp_load = seccomp.build()
    gc.collect()
    gc.freeze()
    num_huge = huge_pages.gather()
    control = socket.socket(fileno=fd)
    contained = seccomp_load is not None
    send(control, Ready(pid=os.getpid(), seccomp=contained, own_network=own_network, num_huge_pages=num_huge))
    Forkserver(control, level, functools.partial(run_child, level, seccomp_load)).serve()


def run_child(
    level: SandboxLevel, seccomp_load: Callable[[], None] | None, spawn: Spawn, channel: socket.socket, folder: str
) -> None:
    """In the child: contain it first, then let it work."""
    from weir.kernel_eval.compiler import builder, compile_worker, source_collector

    containment.contain(level, spawn.limits, folder, seccomp_load)
    roles = {"": compile_worker.run, BUILDER: builder.run, COLLECTOR: source_collector.run}
    roles[spawn.role](channel, folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), SandboxLevel(sys.argv[2]), sys.argv[3])
