"""`python -m weir.kernel_eval.zygotes.worker FD LEVEL TARGET`: forks workers, with torch and Triton's interpreter."""

from __future__ import annotations

import socket

from weir.kernel_eval.ipc.forkserver import Spawn
from weir.kernel_eval.ipc.framing import learn
from weir.kernel_eval.ipc.messages import FromJudge
from weir.kernel_eval.sandbox import seccomp
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain.targets import TARGETS
from weir.kernel_eval.zygotes.zygote import Children, contained, start


def prepare(level: SandboxLevel, target: str) -> Children:
    """Import everything that a worker needs."""
    import torch

    from weir.kernel_eval.interpreter import libdevice, narrow_floats, patch
    from weir.kernel_eval.toolchain import stub_driver
    from weir.kernel_eval.worker import worker as _worker  # noqa: F401 - imported once, for every worker
    from weir.kernel_eval.worker.warm_up import warm_up

    torch.set_num_threads(1)
    narrow_floats.install()
    libdevice.install()
    patch.install()
    stub_driver.install(TARGETS[target])
    warm_up()
    learn(FromJudge)
    seccomp_filter = seccomp.build()
    return Children(contained(level, {"": seccomp_filter}, run_worker), seccomp_filter is not None)


def run_worker(spawn: Spawn, channel: socket.socket, folder: str) -> None:
    """Run a worker in a contained child."""
    from weir.kernel_eval.worker import worker

    worker.run(spawn.limits, channel, folder)


if __name__ == "__main__":
    start(prepare)
