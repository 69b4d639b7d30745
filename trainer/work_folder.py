"""A folder for what one process works on, in the system's temporary folder.

Invariant: it lives as long as its maker at most: who makes the next one deletes those whose makers were killed. A maker
holds a lock on its folder, which the kernel gives back however the process ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path


class WorkFolder:
    """An empty folder whose name begins with `prefix`, and which nobody else reads."""

    def __init__(self, prefix: str) -> None:
        _delete_left(prefix)
        self.path, lock = _new_folder(prefix)
        self._end = weakref.finalize(self, _delete, self.path, lock)

    def close(self) -> None:
        """Delete it, which is also done when nobody has it any more. May be called twice."""
        self._end()


def _new_folder(prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            lock = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # taken for one that was left
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)


def _delete(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _delete_left(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            lock = os.open(path, os.O_RDONLY)
        except OSError:  # it went, or is another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:  # its maker lives
            pass
        finally:
            os.close(lock)
