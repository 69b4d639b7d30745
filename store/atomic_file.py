"""Files that appear whole or not at all: written under a hidden name in the same folder, then renamed.

Invariant: a reader sees the old file or the new one, never a part; an error leaves the old file and no other.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written_aside(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a path to write to; on success it is renamed to `path`, on an error it is deleted.

    `durable` syncs the file before the rename and the folder after it, so that a power cut keeps one of both files.
    Raises OSError where the file system refuses.
    """
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")  # several threads may write the same path
    try:
        aside.touch()
        yield aside
        if durable:
            fsync(aside)
        aside.replace(path)
        if durable:
            fsync(path.parent)
    finally:
        with contextlib.suppress(OSError):  # the folder may be gone
            aside.unlink(missing_ok=True)


def fsync(path: Path) -> None:
    """Bring a file or a folder to disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
