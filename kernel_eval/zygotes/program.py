"""`python -m weir.kernel_eval.zygotes.program FD LEVEL`: the forkserver of assemblers and compilers of CUDA C++.

What is forked here becomes another program at once. So nothing is imported that such a program has no use for, torch
and Triton before all: a fork copies what the parent holds, and that of a compile zygote is a hundred times as much.
"""

from __future__ import annotations

import functools
import gc
import os
import socket
import sys
from collections.abc import Callable

from weir.kernel_eval.compiler import assembler, native_compiler
from weir.kernel_eval.ipc.forkserver import ASSEMBLER, COMPILER, Forkserver, Ready, Spawn
from weir.kernel_eval.ipc.framing import learn, send
from weir.kernel_eval.ipc.messages import Assemble, CompileNative
from weir.kernel_eval.sandbox import containment, seccomp, syscalls
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain.targets import TARGETS

_ROLES = {ASSEMBLER: assembler.run, COMPILER: native_compiler.run}


def main(fd: int, level: SandboxLevel) -> None:
    """Say so when ready, and fork until the server is gone."""
    own_network = containment.isolate_zygote(level)
    syscalls.die_with_parent()
    filters = {ASSEMBLER: seccomp.build(allowed=("execve",)), COMPILER: seccomp.build(may_fork=True)}
    learn(Assemble, CompileNative)
    for target in TARGETS.values():
        assembler.program_for(target)  # which looks for it on disk, once
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=fd)
    send(control, Ready(pid=os.getpid(), seccomp=filters[ASSEMBLER] is not None, own_network=own_network))
    Forkserver(control, level, functools.partial(run_child, level, filters)).serve()


def run_child(
    level: SandboxLevel,
    filters: dict[str, Callable[[], None] | None],
    spawn: Spawn,
    channel: socket.socket,
    folder: str,
) -> None:
    """In the child: contain it first, then let it become its program."""
    containment.contain(level, spawn.limits, folder, filters[spawn.role])
    _ROLES[spawn.role](channel, folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), SandboxLevel(sys.argv[2]))
