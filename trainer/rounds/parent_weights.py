"""The weights that a new round starts from, and their verification.

Invariant: no other weights replace lost or damaged ones. A version folder is verified byte for byte before it is
loaded. Where rounds made versions and no folder of them is left, no round starts from the first weights again.
"""

from __future__ import annotations

from pathlib import Path

from weir.store.catalog.catalog import Catalog
from weir.trainer.errors import RoundError
from weir.trainer.versions.stored import make_whole
from weir.trainer.versions.version_folder import (
    MANIFEST,
    check_complete,
    current_version,
    read_manifest,
    verify,
    versions_folder,
)


def newest_parent(catalog: Catalog, root: Path, model_path: Path) -> tuple[int, Path]:
    """Number and folder of the newest version or, before the first round, of the first weights.

    Raises `VersionError` where the newest version is incomplete or cannot be rebuilt, and `RoundError` where all
    versions are lost.
    """
    version = current_version(root)
    if version is not None:
        make_whole(version.path)
        check_complete(version)
        return version.manifest.version, version.path
    _check_none_lost(catalog, root)
    first = read_manifest(model_path).version if (model_path / MANIFEST).exists() else 0
    return first, model_path


def check_content(folder: Path) -> None:
    """Verify a folder's files against its manifest, if it has one. Raises `VersionError`."""
    if (folder / MANIFEST).exists():
        verify(folder)


def _check_none_lost(catalog: Catalog, root: Path) -> None:
    made = str(versions_folder(root).absolute())
    trained = [row.version for row in catalog.versions() if row.parent is not None or row.path.startswith(made)]
    if trained:
        raise RoundError(
            f"the catalog knows version {trained[-1]}, and {versions_folder(root)} holds no version: a round would "
            "begin again from the first weights; restore the folder from a copy, or begin a new store "
            "(store.root) to train from the first weights; nothing was claimed"
        )
