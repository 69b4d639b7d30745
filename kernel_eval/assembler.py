"""The assembler: a contained process that becomes ptxas, for one text that a compile worker made.

No code of a candidate runs in it, but ptxas reads what a candidate may have written, so that it has a worker's limits
and no rights beyond starting that one program. What it prints (registers, spills, errors) therefore comes from
NVIDIA's assembler and not from the candidate.
"""

from __future__ import annotations

import os
import socket

from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

from weir.kernel_eval.frames import receive
from weir.kernel_eval.targets import TARGETS
from weir.kernel_eval.worker_messages import Assemble


def run(channel: socket.socket, folder: str) -> None:
    """Receive one text, and become ptxas. Returns only by raising."""
    message, _ = receive(channel, Assemble)
    path = f"{folder}/kernel.ptx"
    with open(path, "w", encoding="utf-8") as file:
        file.write(message.assembly)
    arch = TARGETS[message.target].arch
    program = get_ptxas(arch).path
    name = f"--gpu-name={sm_arch_from_capability(arch)}"
    os.execv(program, [program, "-v", "--regAllocOptLevel=2", name, path, "-o", f"{folder}/kernel.cubin"])
