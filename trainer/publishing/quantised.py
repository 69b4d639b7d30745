"""The folder of a version in float8, made beside it before it is published (fp8_form.py).

Invariant: it appears whole by one rename, has a manifest of its own, and is used again only for the version that it was
made of, verified.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from weir.store.version_forms import fp8_folder
from weir.trainer.errors import PublishFailed, VersionError
from weir.trainer.versions.folder_rename import delete_folder
from weir.trainer.versions.version_folder import MANIFEST, FileEntry, read_manifest, verify, write_version

SOURCE = "made_of.sha256"  # of the manifest of the version


def with_fp8(folder: Path) -> Path:
    """The quantised folder of a version, made unless it is there. Raises `PublishFailed` where it cannot be written."""
    from weir.trainer.publishing.fp8_form import write_fp8

    target = fp8_folder(folder)
    if target == folder:
        return target
    try:
        digest = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
        if target.exists():
            if (target / SOURCE).exists() and (target / SOURCE).read_text() == digest and _is_intact(target):
                return target
            delete_folder(target)
        manifest = read_manifest(folder)

        def write_files(aside: Path) -> dict[str, FileEntry]:
            write_fp8(folder, aside)
            (aside / SOURCE).write_text(digest)
            return {}

        write_version(
            target,
            write_files,
            version=manifest.version,
            parent=manifest.parent,
            round_id=manifest.round,
            config_hash=manifest.config_hash,
            seed=manifest.seed,
            groups=[],
        )
    except (VersionError, OSError) as error:
        raise PublishFailed(f"version in {folder} cannot be written in float8: {error}") from error
    return target


def without_fp8(folder: Path) -> None:
    """Delete the quantised folder of a version that is published as it is stored."""
    target = fp8_folder(folder)
    if target != folder and target.exists():
        delete_folder(target)


def _is_intact(folder: Path) -> bool:
    try:
        verify(folder)
    except VersionError:
        return False
    return True
