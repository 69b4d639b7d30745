"""`python -m weir.kernel_eval.zygotes.worker FD LEVEL TARGET`: forks workers, torch and Triton's interpreter warm.

What it must not be: multi-threaded (a fork would copy one thread and the locks of the others), or the holder of
anything that a candidate may not see, because every worker starts as its copy.
"""

from __future__ import annotations

import functools
import gc
import os
import socket
import sys
from collections.abc import Callable

from weir.kernel_eval.ipc.forkserver import Forkserver, Ready, Spawn
from weir.kernel_eval.ipc.framing import learn, send
from weir.kernel_eval.ipc.messages import FromJudge
from weir.kernel_eval.sandbox import containment, huge_pages, seccomp, syscalls
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain.targets import TARGETS


def main(fd: int, level: SandboxLevel, target: str) -> None:
    """Import what workers need, say so, and fork until the server is gone."""
    own_network = containment.isolate_zygote(level)
    syscalls.die_with_parent()
    import torch

    from weir.kernel_eval.interpreter import libdevice, narrow_floats, patch
    from weir.kernel_eval.toolchain import stub_driver
    from weir.kernel_eval.worker import worker as _worker  # noqa: F401 - imported once, for every one
    from weir.kernel_eval.worker.warm_up import warm_up

    torch.set_num_threads(1)
    narrow_floats.install()
    libdevice.install()
    patch.install()
    stub_driver.install(TARGETS[target])
    warm_up()
    learn(FromJudge)
    seccomp_load = seccomp.build()
    gc.collect()
    gc.freeze()  # the collector of a worker leaves the shared pages alone
    num_huge = huge_pages.gather()
    control = socket.socket(fileno=fd)
    contained = seccomp_load is not None
    send(control, Ready(pid=os.getpid(), seccomp=contained, own_network=own_network, num_huge_pages=num_huge))
    Forkserver(control, level, functools.partial(run_worker, level, seccomp_load)).serve()


def run_worker(
    level: SandboxLevel, seccomp_load: Callable[[], None] | None, spawn: Spawn, channel: socket.socket, folder: str
) -> None:
    """In the child: contain it first, then let it work."""
    from weir.kernel_eval.worker import worker

    containment.contain(level, spawn.limits, folder, seccomp_load)
    worker.run(spawn.limits, channel, folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), SandboxLevel(sys.argv[2]), sys.argv[3])
