"""The assembler: a contained process that becomes ptxas, for one text that a compile worker made.

No code of a candidate runs in it. Since ptxas reads text that a candidate may have written, the process has a worker's
limits, and may only start that one program. Its output (registers, spills, errors) comes from NVIDIA's assembler and
not from the candidate.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import socket
from pathlib import Path

from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import Assemble, Opened
from weir.kernel_eval.toolchain.targets import Target, named

# ptxas allocates some ten MB in small pieces; in huge pages, requested at once, they cause a fifth of the page faults
_MALLOC = "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=16777216:glibc.malloc.mmap_threshold=67108864"


def run(channel: socket.socket, folder: str) -> None:
    """Receive one text, and become ptxas. Never returns. Raises OSError if it cannot."""
    message, _ = receive(channel, Assemble)
    path = f"{folder}/kernel.ptx"
    with open(path, "w", encoding="utf-8") as file:
        file.write(message.assembly)
    output = f"{folder}/kernel.cubin"
    fd = os.open(output, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)  # ptxas writes into the existing file
    send(channel, Opened(), (fd,))
    target = named(message.target)
    program, name = program_for(target), f"--gpu-name={architecture(target)}"
    fused = [] if message.fuses else ["--fmad=false"]
    os.execve(
        program,
        [program, "-v", *fused, "--regAllocOptLevel=2", name, path, "-o", output],
        {**os.environ, "GLIBC_TUNABLES": _MALLOC},
    )


@functools.cache
def program_for(target: Target) -> str:
    """The path of Triton's assembler for an architecture, found without importing Triton, which is large."""
    triton = importlib.util.find_spec("triton")
    assert triton is not None and triton.origin is not None
    name = "ptxas-blackwell" if target.arch >= 100 else "ptxas"
    return str(Path(triton.origin).parent / "backends" / "nvidia" / "bin" / name)


def architecture(target: Target) -> str:
    """The architecture's name for ptxas, with the features of this exact architecture if it has any (suffix a)."""
    return target.name + ("a" if target.arch >= 90 else "")
