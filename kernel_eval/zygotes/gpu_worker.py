"""`python -m weir.kernel_eval.zygotes.gpu_worker FD LEVEL TARGET`: forks players and workers on GPUs.

Workers hold candidates in native code, and have Triton's compiler for the kernels that those launch beside it.

The zygote itself must not initialise CUDA, which does not survive a fork. Everything that starts a program happens
here, before the system call filter of a worker forbids it: Triton's C launcher is built and loaded once, and the
assemblers report their versions.
"""

from __future__ import annotations

import os
import socket

from weir.kernel_eval.ipc.forkserver import PLAYER, Spawn
from weir.kernel_eval.ipc.framing import learn
from weir.kernel_eval.ipc.messages import ToPlayer
from weir.kernel_eval.sandbox import seccomp
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain.targets import TARGETS, named
from weir.kernel_eval.zygotes.zygote import Children, contained, scratch_folder, start


def prepare(level: SandboxLevel, target: str) -> Children:
    """Import everything that the children need."""
    import torch

    from weir.kernel_eval.replay.device import (
        player,  # noqa: F401 - imported once, for every child
    )
    from weir.kernel_eval.worker import worker  # noqa: F401

    torch.set_num_threads(1)
    _build_launcher(level)
    _query_assemblers(target)
    seccomp_filter = seccomp.build(on_gpu=True)
    learn(ToPlayer)
    run_child = contained(level, dict.fromkeys(("", PLAYER), seccomp_filter), run_role)
    return Children(run_child, seccomp_filter is not None, huge_pages=False)


def run_role(spawn: Spawn, channel: socket.socket, folder: str) -> None:
    """Run a player or a worker in a contained child."""
    from weir.kernel_eval.replay.device import player
    from weir.kernel_eval.worker import worker

    role = player if spawn.role == PLAYER else worker
    role.run(spawn.limits, channel, folder)


def _build_launcher(level: SandboxLevel) -> None:
    """Have Triton build its launcher with this machine's C compiler; loading it does not touch a GPU."""
    from triton.backends.nvidia.driver import CudaUtils

    with scratch_folder(level) as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        CudaUtils()  # a singleton, which keeps the loaded module
    CudaUtils.__init__ = lambda self: None  # each call of the class would build the module again, and a worker cannot


def _query_assemblers(target: str) -> None:
    from triton.backends.nvidia.compiler import get_ptxas_version

    for each in {*TARGETS.values(), named(target)}:
        get_ptxas_version(each.arch)


if __name__ == "__main__":
    start(prepare)
