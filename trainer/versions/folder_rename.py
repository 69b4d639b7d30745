"""Folders that appear and disappear by one rename, and the leftovers of killed processes.

Invariant: a reader sees a whole folder or none. `.<name>.<pid>.new` beside a folder is its successor in the making,
`.<name>.<pid>.old` is on its way out; files written aside (`store/atomic_file.py`) have names of the first form.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from weir.store.atomic_file import fsync


@contextlib.contextmanager
def folder_aside(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder to fill; on success it is renamed to `folder`, on an error it is deleted.

    The caller syncs the files that it writes; the folder itself is synced here, before and after the rename. An
    existing `folder` is deleted with `replace`. Raises OSError where it exists without `replace`, or where the file
    system refuses.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        yield aside
        fsync(aside)
        doomed = _moved_away(folder) if replace and folder.exists() else None
        aside.rename(folder)
        fsync(folder.parent)
        if doomed is not None:
            shutil.rmtree(doomed, ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def delete_folder(folder: Path) -> None:
    """Delete a folder; readers lose all of it in one step. Raises OSError where it cannot be renamed."""
    shutil.rmtree(_moved_away(folder), ignore_errors=True)


def delete_leftovers(parent: Path, name: str | None = None) -> None:
    """Delete the hidden files and folders that killed processes left in `parent`: all of them, or those of one name."""
    pattern = "*" if name is None else f"{glob.escape(name)}.*"
    for leftover in (*parent.glob(f".{pattern}.new"), *parent.glob(f".{pattern}.old")):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _moved_away(folder: Path) -> Path:
    return folder.rename(folder.with_name(f".{folder.name}.{os.getpid()}.old"))
