"""Where bytes go that leave the store damaged: a folder from which nothing is ever deleted by Weir."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from weir.store.config import StoreConfig
from weir.store.disk import Disk

FOLDER = "set-aside"


def keep_aside(config: StoreConfig, disk: Disk, path: Path) -> Path:
    """Give a file of the store a second name, which stays."""
    kept = config.folder / FOLDER / path.relative_to(config.folder)
    disk.make_folder(kept.parent)
    with contextlib.suppress(FileExistsError):  # one that was killed came so far
        os.link(path, kept)
    disk.sync_folder(kept.parent)
    return kept
