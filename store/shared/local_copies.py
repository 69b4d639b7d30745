"""Copies of shared files on this machine: which are being read, and which are deleted when there are too many.

Invariants: a copy that any reader here uses is not deleted: readers note its name before they check whether it exists,
in a file of `reading/` whose lock ends with their process. Of the others, and of the parts of files, the least recently
used are deleted until all together have at most `local_copies_bytes`; each can be fetched again. Where the root is a
folder, nothing is done.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from weir.store.config import StoreConfig
from weir.store.log.writer import lock_file
from weir.store.shared.files import fetch_keys
from weir.store.shared.object_store import objects_of
from weir.store.shared.part_copies import delete_parts, part_copies

FOLDER = "reading"
LOCK = "copies.lock"
SUFFIX = ".parquet"
ALL = "*"


class Copies:
    """The copies that one reader uses, until it is closed. Closing twice is harmless."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._objects = objects_of(config)
        self._note = config.folder / FOLDER / uuid.uuid4().hex
        self._fd = -1
        self._fetched = False

    def fetch(self, paths: Sequence[str]) -> None:
        """Fetch files that the catalog names, and keep them until `close`. Raises FileNotFoundError."""
        if self._objects is None or not paths:
            return
        self._say(paths)
        if fetch_keys(self._objects, self._config.folder, paths):
            self._fetched = True
        for path in paths:
            os.utime(self._config.folder / path)

    def read_parts(self, paths: Sequence[str]) -> None:
        """Bound the copies at `close` for a reader that fetches ranges of these files; parts of others are deleted."""
        delete_parts(self._config.folder, paths)
        self._fetched = self._fetched or bool(paths)

    def hold_all(self) -> None:
        """Keep every copy of this machine until `close`."""
        if self._objects is not None:
            self._say([ALL])
            self._fetched = True

    def close(self) -> None:
        """Release the copies; those that are too many are deleted."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._note.unlink(missing_ok=True)
            os.close(fd)
        if self._fetched:
            self._fetched = False
            delete_copies(self._config)

    def _say(self, paths: Sequence[str]) -> None:
        with _turn(self._config, fcntl.LOCK_SH):
            if self._fd < 0:
                self._note.parent.mkdir(exist_ok=True)
                self._fd = lock_file(self._note)
            os.write(self._fd, "".join(f"{path}\n" for path in paths).encode())


@contextlib.contextmanager
def all_copies(config: StoreConfig) -> Iterator[None]:
    """Keep every copy while the block writes, merges or surveys files."""
    copies = Copies(config)
    copies.hold_all()
    try:
        yield
    finally:
        copies.close()


def delete_copies(config: StoreConfig) -> int:
    """Delete the least recently used copies that are too many and unused; returns how many."""
    count = 0
    with _turn(config, fcntl.LOCK_EX):
        read = _being_read(config.folder / FOLDER)
        if ALL in read:
            return 0  # the process that holds all of them does it afterwards
        whole = config.data_dir.glob(f"[!.]*{SUFFIX}")  # without those being fetched
        found = _there([*whole, *part_copies(config.folder)])
        excess = sum(_disk_bytes(stat) for _, stat in found) - config.local_copies_bytes
        for path, stat in sorted(found, key=lambda one: one[1].st_mtime_ns):
            if excess > 0 and str(path.relative_to(config.folder)) not in read:
                path.unlink(missing_ok=True)
                excess -= _disk_bytes(stat)
                count += 1
    return count


def _there(paths: Sequence[Path]) -> list[tuple[Path, os.stat_result]]:
    """The copies with what they occupy, without those that another reader deletes meanwhile."""
    found: list[tuple[Path, os.stat_result]] = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found.append((path, path.stat()))
    return found


def _disk_bytes(stat: os.stat_result) -> int:
    """What a copy occupies; a part has holes."""
    return min(stat.st_size, stat.st_blocks * 512)


def _being_read(folder: Path) -> set[str]:
    """The names noted by live readers; the notes of dead ones are deleted."""
    found: set[str] = set()
    for note in folder.iterdir() if folder.is_dir() else []:
        try:
            os.close(lock_file(note))
        except BlockingIOError:
            with contextlib.suppress(FileNotFoundError):  # its reader has just ended
                found.update(note.read_text().splitlines())
        else:
            note.unlink(missing_ok=True)
    return found


@contextlib.contextmanager
def _turn(config: StoreConfig, kind: int) -> Iterator[None]:
    config.folder.mkdir(parents=True, exist_ok=True)
    with open(config.folder / LOCK, "a") as file:
        fcntl.flock(file, kind)
        yield
