"""The temporary folders of servers, and the removal of those that killed servers left behind.

Folders of living processes are never touched. Everything else of an evaluation ends with its processes: anonymous
memory, the sandbox's tmpfs, its namespaces.
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
    """A folder for workers' own folders, named by this process's pid; other users may pass through it, not list it."""
    folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", ignore_cleanup_errors=True)
    Path(folder.name).chmod(0o711)
    return folder


def remove_leftovers(place: Path | None = None) -> list[str]:
    """Remove the folders of this user's servers that have ended. Returns their names. Blocks."""
    removed = []
    for folder in sorted((place or Path(tempfile.gettempdir())).glob(f"{PREFIX}*")):
        match = _OURS.match(folder.name)
        if match is None or folder.is_symlink() or folder.stat().st_uid != os.getuid() or _is_alive(int(match[1])):
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
