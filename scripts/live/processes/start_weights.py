"""The weights that an engine of `weir train` starts with, under a name of their own until it has loaded them.

An engine may need longer for its start than rounds need for `keep_versions` versions. Invariant: what it was told to
load stays, although its version is deleted; the files are the version's own, linked and not copied.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from weir.scripts.launch.fleet import served_model
from weir.scripts.launch.settings import Settings
from weir.store.config import StoreConfig
from weir.store.version_forms import loaded_by_engines
from weir.trainer.versions.version_folder import MANIFEST, is_model_file

TRIES = 5  # a version may be deleted while it is linked: there is a newer one then


def start_weights(settings: Settings, member: str) -> Path:
    """The newest weights, kept for the engine of a member. Raises `UsageError` where there are none.

    Where files cannot be linked, and with weights that are no version, it is their own folder.
    """
    for _ in range(TRIES):
        folder = loaded_by_engines(served_model(settings))
        if not (folder / MANIFEST).exists():
            break
        try:
            return _linked(folder, _kept(settings.store, member))
        except FileNotFoundError:
            continue
        except OSError:  # of a file system without links
            break
    return folder


def forget(store: StoreConfig, member: str) -> None:
    """The engine of a member has loaded them."""
    shutil.rmtree(_kept(store, member), ignore_errors=True)


def _kept(store: StoreConfig, member: str) -> Path:
    return store.folder / "start_weights" / member


def _linked(folder: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in folder.iterdir():
        if file.is_file() and is_model_file(file.name):
            os.link(file, target / file.name)
    if not any(target.glob("*.safetensors")):  # it is no longer whole
        raise FileNotFoundError(folder)
    return target
