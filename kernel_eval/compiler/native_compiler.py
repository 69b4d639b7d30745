"""A contained process that runs a compiler of CUDA C++ or HIP, on texts that a candidate's process handed over.

Such a compiler starts programs of its own: the system-call filter lets it. No code of the candidate runs here; what was
made is handed to the judge, which gives it to processes that are as contained as the candidate's.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import CompileNative, Written


def run(channel: socket.socket, folder: str) -> None:
    """Receive the texts, run the compiler, hand over what it made. Leaves the process where it failed."""
    message, _ = receive(channel, CompileNative)
    os.chdir(folder)
    for name, text in message.files.items():
        Path(folder, name).write_text(text, encoding="utf-8")
    path = f"{Path(message.command[0]).parent}:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "TMPDIR": folder, "HOME": folder, "LANG": "C.UTF-8"}
    ended = subprocess.run(message.command, env=environment, stdin=subprocess.DEVNULL)
    made = {name: Path(folder, name).read_bytes() for name in message.results if Path(folder, name).is_file()}
    send(channel, Written(made))
    if ended.returncode != 0:
        sys.exit(ended.returncode)
