"""Has the judge assemble PTX, as the last step of Triton's compilation in a process that cannot start programs.

All steps up to PTX run in this process. The judge has a contained assembler make machine code of the PTX, and sends it
back. So the system call filter need not allow programs, and the judge learns the resources of each kernel.
"""

from __future__ import annotations

import socket
from typing import Any

from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.errors import PTXASError

from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import Assemble, Assembled


def install(channel: socket.socket, target: str) -> None:
    """Patch Triton in this process; it then raises `PTXASError` for texts that the assembler refuses."""
    add_stages = CUDABackend.add_stages

    def with_judge(backend: Any, stages: dict[str, Any], options: Any, *rest: Any) -> None:
        add_stages(backend, stages, options, *rest)
        stages["cubin"] = lambda text, metadata: _assemble(
            channel, Assemble(text, target, bool(options.enable_fp_fusion))
        )

    CUDABackend.add_stages = with_judge


def _assemble(channel: socket.socket, request: Assemble) -> bytes:
    send(channel, request)
    answer, _ = receive(channel, Assembled)
    if answer.code is None:
        raise PTXASError(answer.printed)
    return answer.code
