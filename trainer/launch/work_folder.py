"""Temporary folders that end with their owner, however it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path


class WorkFolder:
    """A new temporary folder whose name begins with `prefix`.

    Its owner holds a lock on it, which the kernel releases however the process ends; a folder without a locked owner is
    deleted when the next one is made.
    """

    def __init__(self, prefix: str) -> None:
        _delete_ownerless(prefix)
        self.path, lock = _new_folder(prefix)
        self._end = weakref.finalize(self, _delete, self.path, lock)

    def close(self) -> None:
        """Delete the folder; its garbage collection does the same. May be called twice."""
        self._end()


def _new_folder(prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            lock = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # deleted as ownerless before it was locked
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)


def _delete(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _delete_ownerless(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            lock = os.open(path, os.O_RDONLY)
        except OSError:  # deleted meanwhile, or another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:  # its owner lives
            pass
        finally:
            os.close(lock)
