"""The right to use a GPU alone, over all processes of this user on this machine: two at once would time each other.

A lock of the operating system on a file that is named by the GPU's UUID; it is given up however its holder ends. Not
covered: other users' processes, and programs that do not ask.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def gpu_lock(uuid: str, folder: Path | None = None) -> Iterator[None]:
    """Wait for the GPU, and hold it."""
    place = folder or Path(tempfile.gettempdir())
    path = place / f"weir-gpu-{os.getuid()}-{uuid.replace('/', '_')}.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
