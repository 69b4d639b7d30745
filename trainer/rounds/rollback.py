"""Rollback: the weights of an earlier version become the newest version, under a new number.

Invariant: a number names one set of weights for ever and numbers only grow, so that recorded versions keep their
meaning; the versions in between stay. The next round starts from the weights and the optimiser state of the earlier
version.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.errors import TrainerUsageError
from weir.trainer.rounds.metrics import METRICS_FILE
from weir.trainer.rounds.new_number import enter_numbered, next_number
from weir.trainer.versions.delta_file import SUFFIX
from weir.trainer.versions.object_store import fetch_version
from weir.trainer.versions.version_folder import (
    MANIFEST,
    Version,
    current_version,
    list_versions,
    verify,
    version_path,
    write_version,
)


def roll_back(catalog: Catalog, store: StoreConfig, number: int) -> Version:
    """Make a new version from the weights of version `number`. The caller holds the lease for rounds.

    Raises `TrainerUsageError` where that version is the newest or has no folder, `VersionError` where its folder is
    damaged, and `RoundError` while a round is open or where another machine made the same number.
    """
    folder = _source(store, number)
    new = next_number(catalog, store)
    source = verify(folder)
    version = write_version(
        version_path(store.folder, new),
        lambda target: _link_files(folder, target),
        version=new,
        parent=number,
        round_id=None,
        config_hash=source.config_hash,
        seed=source.seed,
        groups=[],
    )
    enter_numbered(catalog, store, version)
    return version


def _source(store: StoreConfig, number: int) -> Path:
    newest = current_version(store.folder)
    if newest is not None and newest.manifest.version == number:
        raise TrainerUsageError(
            f"version {number} is the newest already; `weir publish {newest.path}` publishes it again"
        )
    folder = version_path(store.folder, number)
    fetch_version(store, number)
    if not folder.exists():
        there = ", ".join(str(version.manifest.version) for version in list_versions(store.folder)) or "none"
        raise TrainerUsageError(f"version {number} has no folder; there are: {there}")
    return folder


def _link_files(source: Path, target: Path) -> None:
    """Hard-link the files into another folder, without manifest, metrics and deltas; copy where that fails."""
    for file in source.iterdir():
        if file.name in (MANIFEST, METRICS_FILE) or file.name.endswith(SUFFIX):
            continue
        try:
            os.link(file, target / file.name)
        except OSError:
            shutil.copyfile(file, target / file.name)
