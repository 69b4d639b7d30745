"""The quarantine: a folder for damaged segments and files, from which Weir deletes nothing."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from weir.store.config import StoreConfig
from weir.store.disk import Disk

FOLDER = "set-aside"


def quarantine(config: StoreConfig, disk: Disk, path: Path) -> Path:
    """Link a file of the store into the quarantine; returns the link, which stays when the file is deleted."""
    kept = config.folder / FOLDER / path.relative_to(config.folder)
    disk.make_folder(kept.parent)
    with contextlib.suppress(FileExistsError):  # from a run that was killed
        os.link(path, kept)
    disk.sync_folder(kept.parent)
    return kept
