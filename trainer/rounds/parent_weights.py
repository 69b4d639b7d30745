"""The weights that a new round starts from, and whether they are what was written.

Invariant: no other weights take the place of those that are lost or damaged. A version folder that is about to be
loaded is what its manifest says, byte for byte; where rounds made versions and no folder of them is left, no round
begins again from the first weights. Not here: the parent of a round that is claimed already (`claims.py`).
"""

from __future__ import annotations

from pathlib import Path

from weir.store.catalog.catalog import Catalog
from weir.trainer.errors import RoundError
from weir.trainer.versions.version_folder import (
    MANIFEST,
    check_complete,
    current_version,
    read_manifest,
    verify,
    versions_folder,
)


def newest_parent(catalog: Catalog, root: Path, model_path: Path) -> tuple[int, Path]:
    """The newest version, or the first weights with the version that their folder names.

    Raises `VersionError` where the newest version is half there, and `RoundError` where all versions are gone.
    """
    version = current_version(root)
    if version is not None:
        check_complete(version)
        return version.manifest.version, version.path
    _check_none_lost(catalog, root)
    first = read_manifest(model_path).version if (model_path / MANIFEST).exists() else 0
    return first, model_path


def check_content(folder: Path) -> None:
    """Hold weights that are about to be loaded against their manifest, if they have one. Raises `VersionError`."""
    if (folder / MANIFEST).exists():
        verify(folder)


def _check_none_lost(catalog: Catalog, root: Path) -> None:
    trained = [row.version for row in catalog.versions() if row.parent is not None]
    if trained:
        raise RoundError(
            f"the catalog knows version {trained[-1]}, and {versions_folder(root)} holds no version: a round would "
            "begin again from the first weights; put the folder back from a copy, or begin a new store "
            "(store.root) to train from the first weights; nothing was claimed"
        )
