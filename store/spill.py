"""Room on a disk for what queries spill: a folder for each connection, below the store's folder.

Invariants: a folder is locked by its process for as long as a query may write there; one that nobody has locked is of a
process that was killed, and the next connection or compaction deletes it. Nothing there belongs to the store.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weir.store.config import StoreConfig
from weir.store.errors import StoreUnavailable

_FOLDER, _LOCK = "spill", "lock"


class SpillFolder:
    """A new, empty folder, until `remove`. Raises StoreUnavailable where the disk refuses it."""

    def __init__(self, config: StoreConfig) -> None:
        parent = config.folder / _FOLDER
        try:
            parent.mkdir(parents=True, exist_ok=True)
            with _turn(parent):
                _delete_unlocked(parent)
                self._folder = Path(tempfile.mkdtemp(dir=parent))
                self._lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            free = shutil.disk_usage(parent).free
        except OSError as error:
            raise StoreUnavailable(
                f"cannot make a folder for what queries spill in {parent}: {error}; free some space there, or set "
                "store.query_spill_mb = 0"
            ) from error
        self.max_bytes = min(config.query_spill_mb * 2**20, free // 2)  # the log needs the disk more

    @property
    def blocks(self) -> Path:
        """The folder that DuckDB makes and removes."""
        return self._folder / "blocks"

    def remove(self) -> None:
        """Delete the folder with everything in it. To be called once."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def delete_abandoned_spills(config: StoreConfig) -> None:
    """Delete the folders of processes that were killed. Raises StoreUnavailable where the disk refuses."""
    parent = config.folder / _FOLDER
    if not parent.is_dir():
        return
    try:
        with _turn(parent):
            _delete_unlocked(parent)
    except OSError as error:
        raise StoreUnavailable(f"cannot delete what killed queries left in {parent}: {error}") from error


@contextmanager
def _turn(parent: Path) -> Iterator[None]:
    """One process at a time makes or deletes folders, so that none is deleted before it is locked."""
    with open(parent / _LOCK, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _delete_unlocked(parent: Path) -> None:
    for folder in parent.iterdir():
        if folder.is_dir() and not _is_locked(folder / _LOCK):
            shutil.rmtree(folder, ignore_errors=True)  # its owner may be deleting it too


def _is_locked(lock: Path) -> bool:
    try:
        with open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False
