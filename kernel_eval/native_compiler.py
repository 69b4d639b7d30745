"""A contained process that becomes a compiler of CUDA C++ or HIP, for one text that a collector handed over.

As the assembler, but that such a compiler starts programs of its own: its system-call filter lets it. No code of the
candidate runs in it: device code is translated, and thrown away.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from weir.kernel_eval.frames import receive
from weir.kernel_eval.worker_messages import CompileNative


def run(channel: socket.socket, folder: str) -> None:
    """Receive one text, and become the compiler. Returns only by raising."""
    message, _ = receive(channel, CompileNative)
    os.chdir(folder)
    Path(folder, message.file_name).write_text(message.text, encoding="utf-8")
    program = message.command[0]
    path = f"{Path(program).parent}:/usr/local/bin:/usr/bin:/bin"
    os.execve(program, message.command, {"PATH": path, "TMPDIR": folder, "HOME": folder, "LANG": "C.UTF-8"})
