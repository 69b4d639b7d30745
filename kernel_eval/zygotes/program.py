"""`python -m weir.kernel_eval.zygotes.program FD LEVEL`: forks children that become assemblers or CUDA C++ compilers.

A child execs its program at once. Therefore this zygote imports neither torch nor Triton, nor any other module that the
children do not need: a fork copies the parent's page tables, and those of a compile zygote are a hundred times larger.
"""

from __future__ import annotations

import socket

from weir.kernel_eval.compiler import assembler, native_compiler
from weir.kernel_eval.ipc.forkserver import ASSEMBLER, COMPILER, Spawn
from weir.kernel_eval.ipc.framing import learn
from weir.kernel_eval.ipc.messages import Assemble, CompileNative
from weir.kernel_eval.sandbox import seccomp
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.kernel_eval.toolchain.targets import TARGETS
from weir.kernel_eval.zygotes.zygote import Children, contained, start

_ROLES = {ASSEMBLER: assembler.run, COMPILER: native_compiler.run}


def prepare(level: SandboxLevel) -> Children:
    """Build the filters, and find the assemblers on disk."""
    filters = {ASSEMBLER: seccomp.build(allowed=("execve",)), COMPILER: seccomp.build(may_fork=True)}
    learn(Assemble, CompileNative)
    for target in TARGETS.values():
        assembler.program_for(target)  # cached
    return Children(contained(level, filters, run_role), filters[ASSEMBLER] is not None, huge_pages=False)


def run_role(spawn: Spawn, channel: socket.socket, folder: str) -> None:
    """Become the requested program, in a contained child."""
    _ROLES[spawn.role](channel, folder)


if __name__ == "__main__":
    start(prepare)
