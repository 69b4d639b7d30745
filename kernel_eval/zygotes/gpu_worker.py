"""`python -m weir.kernel_eval.zygotes.gpu_worker FD LEVEL TARGET`: forks workers on GPUs, with Triton's compiler.

It must not speak to a GPU itself: a driver does not survive a fork. What starts a program is done here, before the
filter of system calls closes over a worker: Triton's part in C, which launches kernels, is built once and loaded, and
the assemblers are asked for their versions.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import socket
import sys
import tempfile

from weir.kernel_eval.ipc.forkserver import Forkserver, Ready
from weir.kernel_eval.ipc.framing import send
from weir.kernel_eval.sandbox import containment, seccomp, syscalls
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain.targets import TARGETS, named
from weir.kernel_eval.zygotes.worker import run_worker


def main(fd: int, level: SandboxLevel, target: str) -> None:
    """Import what workers need, say so, and fork until the server is gone."""
    own_network = containment.isolate_zygote(level)
    syscalls.die_with_parent()
    os.environ.pop("TRITON_INTERPRET", None)
    import torch

    from weir.kernel_eval.worker import (
        worker,  # noqa: F401 - once, for every worker
    )

    torch.set_num_threads(1)
    _build_launcher(level)
    _ask_assemblers(target)
    seccomp_load = seccomp.build(on_gpu=True)
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=fd)
    send(control, Ready(pid=os.getpid(), seccomp=seccomp_load is not None, own_network=own_network))
    Forkserver(control, level, functools.partial(run_worker, level, seccomp_load)).serve()


def _build_launcher(level: SandboxLevel) -> None:
    """Triton builds it with the C compiler of this machine; loading it does not touch a GPU."""
    from triton.backends.nvidia.driver import CudaUtils

    own_tmp = containment.worker_tmp() if level is SandboxLevel.BUBBLEWRAP else tempfile.gettempdir()
    folder = tempfile.mkdtemp(dir=own_tmp)
    os.environ["TRITON_CACHE_DIR"] = folder
    CudaUtils()  # kept by its class
    shutil.rmtree(folder)


def _ask_assemblers(target: str) -> None:
    from triton.backends.nvidia.compiler import get_ptxas_version

    for each in {*TARGETS.values(), named(target)}:
        get_ptxas_version(each.arch)


if __name__ == "__main__":
    main(int(sys.argv[1]), SandboxLevel(sys.argv[2]), sys.argv[3])
