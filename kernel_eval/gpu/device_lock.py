"""A lock for exclusive use of a GPU among all processes of this user: two at once would disturb each other's timings.

A flock on a file named by the GPU's UUID, which the operating system releases however its holder ends. Not covered:
other users' processes, and programs that do not take the lock.
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
    """Wait for the lock of a GPU, and hold it in the block."""
    place = folder or Path(tempfile.gettempdir())
    path = place / f"weir-gpu-{os.getuid()}-{uuid.replace('/', '_')}.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
