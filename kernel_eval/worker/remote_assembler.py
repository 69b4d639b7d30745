"""The last step of Triton's compilation in a process that may start no program: its judge is asked to assemble.

Everything up to PTX runs in process; PTX goes to the judge, which has a contained assembler make machine code of it,
and the code comes back. So the filter of system calls stays closed, and what a kernel needs is known to the judge.
"""

from __future__ import annotations

import socket
from typing import Any

from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.errors import PTXASError

from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import Assemble, Assembled


def install(channel: socket.socket, target: str) -> None:
    """From now on, in this process. Triton raises `PTXASError` for what the assembler refuses."""
    add_stages = CUDABackend.add_stages

    def with_judge(backend: Any, stages: dict[str, Any], options: Any, *rest: Any) -> None:
        add_stages(backend, stages, options, *rest)
        stages["cubin"] = lambda text, metadata: _ask(channel, Assemble(text, target, bool(options.enable_fp_fusion)))

    CUDABackend.add_stages = with_judge


def _ask(channel: socket.socket, question: Assemble) -> bytes:
    send(channel, question)
    answer, _ = receive(channel, Assembled)
    if answer.code is None:
        raise PTXASError(answer.printed)
    return answer.code
