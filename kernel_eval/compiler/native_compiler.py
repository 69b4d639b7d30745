"""A contained process that runs a compiler of CUDA C++ or HIP on texts from a candidate's process.

Such a compiler starts programs of its own, which its system call filter allows. No code of the candidate runs here. The
results go to the judge, which passes them to processes that are as contained as the candidate's.
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
    """Receive the texts, run the compiler, send the files that it made. Exits with its code if it failed."""
    message, _ = receive(channel, CompileNative)
    os.chdir(folder)
    for name, text in message.files.items():
        Path(folder, name).write_text(text, encoding="utf-8")
    path = f"{Path(message.command[0]).parent}:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "TMPDIR": folder, "HOME": folder, "LANG": "C.UTF-8"}
    done = subprocess.run(message.command, env=environment, stdin=subprocess.DEVNULL)
    made = {name: Path(folder, name).read_bytes() for name in message.results if Path(folder, name).is_file()}
    send(channel, Written(made))
    if done.returncode != 0:
        sys.exit(done.returncode)
