"""Folders that killed servers left behind. What belongs to a process that lives is never touched.

Everything else of an evaluation goes with its processes: anonymous memory, the sandbox's tmpfs, its namespaces.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

PREFIX = "weir-kernel-eval-"
_OURS = re.compile(rf"{PREFIX}(\d+)-")


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """Where workers' own folders go, named by this process; workers that are users of their own pass through it."""
    folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", ignore_cleanup_errors=True)
    Path(folder.name).chmod(0o711)
    return folder


def remove_leftovers(place: Path | None = None) -> list[str]:
    """Remove what servers of this user left that are gone; returns the names. Blocks."""
    removed = []
    for folder in sorted((place or Path(tempfile.gettempdir())).glob(f"{PREFIX}*")):
        named = _OURS.match(folder.name)
        if named is None or folder.is_symlink() or folder.stat().st_uid != os.getuid() or _is_alive(int(named[1])):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(folder.name)
    return removed


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
