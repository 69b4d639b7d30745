"""The folder of a version in another form, made beside it before it is published: in float8, or its adapter alone.

Invariant: it appears whole by one rename, has a manifest of its own, and is used again only for the version that it was
made of, verified. Once engines serve a form, no other one is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from weir.store.version_forms import SERVED_AS, ServedAdapter, adapter_folder, fp8_folder, other_forms
from weir.trainer.errors import PublishFailed, VersionError
from weir.trainer.settings.lora import LoraSettings
from weir.trainer.versions.folder_rename import delete_folder
from weir.trainer.versions.version_folder import MANIFEST, FileEntry, read_manifest, verify, write_version

SOURCE = "made_of.sha256"  # of the manifest of the version, and of what else decides what is written


def with_fp8(folder: Path) -> Path:
    """The quantised folder of a version, made unless it is there. Raises `PublishFailed` where it cannot be written."""
    from weir.trainer.publishing.fp8_form import write_fp8

    target = fp8_folder(folder)
    if target == folder:
        return target
    return _made(folder, target, lambda aside: write_fp8(folder, aside), "in float8")


def with_adapter(folder: Path, settings: LoraSettings, name: str) -> Path:
    """The adapter of a version as peft and SGLang read it, made unless it is there. Raises `PublishFailed`.

    A version that no LoRA round made is its own base, with an adapter of zeros.
    """
    from weir.trainer.model.adapter_file import read_published, write_peft, zero_adapter
    from weir.trainer.versions.version_folder import ADAPTER_BASE

    def write(aside: Path) -> None:
        made = (folder / ADAPTER_BASE).exists()
        adapter = read_published(folder) if made else zero_adapter(folder, settings)
        write_peft(adapter, aside)
        served = ServedAdapter(name=name, base=adapter.base, base_files=adapter.base_files)
        (aside / SERVED_AS).write_bytes(msgspec.json.encode(served))

    target = adapter_folder(folder)
    return _made(folder, target, write, "as an adapter", name, settings.model_dump_json())


def keep_only(form: Path, folder: Path) -> None:
    """Delete the forms of a version's folder but the one that engines have loaded, which may be that folder itself."""
    for other in other_forms(folder):
        if other != form:
            delete_folder(other)


def _made(folder: Path, target: Path, write: Callable[[Path], None], what: str, *decided_by: str) -> Path:
    try:
        digest = hashlib.sha256((folder / MANIFEST).read_bytes() + "\0".join(decided_by).encode()).hexdigest()
        if target.exists():
            if (target / SOURCE).exists() and (target / SOURCE).read_text() == digest and _is_intact(target):
                return target
            delete_folder(target)
        manifest = read_manifest(folder)

        def write_files(aside: Path) -> dict[str, FileEntry]:
            write(aside)
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
        raise PublishFailed(f"version in {folder} cannot be written {what}: {error}") from error
    return target


def _is_intact(folder: Path) -> bool:
    try:
        verify(folder)
    except VersionError:
        return False
    return True
