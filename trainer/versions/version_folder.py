"""Version folders: `<root>/versions/<8 digits>/` holds one complete weight version or does not exist.

A folder is written aside and synced, then one rename makes it appear; a second rename updates `CURRENT`, which names
the newest version. The newest folder is authoritative, so a crash between the renames loses nothing. A folder holds
Hugging Face safetensors, configuration and tokenizer, the trainer's state and `manifest.json`. Beside a safetensors
file may be its difference to the same file of another version (`delta_file.py`); `stored.py` deletes such files and
rebuilds them. This module imports no torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable, Container, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from weir.store.atomic_file import fsync, written_aside
from weir.store.clock import now_us
from weir.trainer.errors import VersionError
from weir.trainer.versions.delta_file import SUFFIX, write_delta
from weir.trainer.versions.folder_rename import folder_aside

MANIFEST = "manifest.json"
CURRENT = "CURRENT"
STATE_FILE = "trainer_state.pt"  # the optimiser's state as one process writes it
STATE_INDEX = (
    ".metadata"  # as several ranks write it: torch.distributed.checkpoint's index, and files `__0_0.distcp`, …
)
ADAPTER_BASE = "lora_base.json"  # of a LoRA round: the folder of its frozen weights, the sha256 of each of its files
SCHEMA = 1
_FOLDER = re.compile(r"\d{8}")
# Files of a model folder that are copied into every version made from it.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
)


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a version folder."""

    sha256: str
    size_bytes: int


class DeltaEntry(FileEntry, frozen=True, kw_only=True):
    """The delta file of one file, with the hash of the file that it changes."""

    base_sha256: str


class TensorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Shape and dtype of one tensor, from the header of its safetensors file."""

    shape: list[int]
    dtype: str


class VersionManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `manifest.json`."""

    schema: int = SCHEMA
    version: int
    parent: int | None
    round: int | None
    created_us: int
    config_hash: str
    seed: int
    groups: list[str] = []  # consumed by the round that made this version
    files: dict[str, FileEntry]
    tensors: dict[str, TensorEntry]
    base: int | None = None  # the version that the deltas change
    deltas: dict[str, DeltaEntry] = {}  # by the file that they lead to


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A complete version folder."""

    path: Path
    manifest: VersionManifest


def versions_folder(root: Path) -> Path:
    """The folder of a store's versions."""
    return root / "versions"


def version_path(root: Path, version: int) -> Path:
    """The folder of one version."""
    return versions_folder(root) / f"{version:08d}"


def round_folder(root: Path, round_id: int) -> Path:
    """The folder of one round's files."""
    return root / "rounds" / f"{round_id:08d}"


def read_manifest(folder: Path) -> VersionManifest:
    """The manifest of a version folder. Raises `VersionError` when there is none that can be read."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=VersionManifest)
    except FileNotFoundError:
        raise VersionError(
            f"{folder} is not a version folder: no {MANIFEST} in it; name one of `weir versions`, and move partial "
            "copies away"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise VersionError(f"cannot read {folder / MANIFEST}: {error}") from error


def list_versions(root: Path) -> list[Version]:
    """All complete versions under a store's root, oldest first."""
    folder = versions_folder(root)
    names = sorted(p.name for p in folder.iterdir() if _FOLDER.fullmatch(p.name)) if folder.is_dir() else []
    return [Version(path=folder / name, manifest=read_manifest(folder / name)) for name in names]


def has_state(folder: Path) -> bool:
    """Whether a folder holds the optimiser's state, in either form."""
    return any((folder / name).exists() for name in (STATE_FILE, STATE_INDEX))


def is_state(name: str) -> bool:
    """Whether a file of a version is the optimiser's state or a part of it."""
    return name in (STATE_FILE, STATE_INDEX) or name.endswith(".distcp")


def is_model_file(name: str) -> bool:
    """Whether a file of a version belongs to the model: it is no training state, and no metrics of a round."""
    return not (is_state(name) or name.endswith(".pt") or name == "metrics.json")


def check_complete(version: Version) -> None:
    """Raise `VersionError` where a file of a version is missing or truncated; `verify` also checks the content."""
    for name, entry in version.manifest.files.items():
        file = version.path / name
        size = file.stat().st_size if file.is_file() else None
        if size != entry.size_bytes:
            seen = "is missing" if size is None else f"has {size} bytes instead of {entry.size_bytes}"
            raise VersionError(
                f"version {version.manifest.version} is incomplete: {file} {seen}; copy the folder again, or return to "
                "an earlier version (`weir versions`, `weir rollback`)"
            )


def current_version(root: Path) -> Version | None:
    """The newest complete version, or None where no round has been trained."""
    found = list_versions(root)
    return found[-1] if found else None


def write_version(
    folder: Path,
    write_files: Callable[[Path], Mapping[str, FileEntry] | None],
    *,
    version: int,
    parent: int | None,
    round_id: int | None,
    config_hash: str,
    seed: int,
    groups: list[str],
    base: Version | None = None,
) -> Version:
    """Make a version folder appear at `folder`: `write_files` fills a folder aside, which is then renamed.

    `write_files` may return the manifest's entries of files that it has already synced. Safetensors files also get
    their difference to those of `base`, where that has the same tensors. Raises `VersionError` when
    `folder` exists, since versions are never overwritten, and when it cannot be written.
    """
    check_new(folder)
    try:
        with folder_aside(folder) as aside:
            written = write_files(aside) or {}
            files = dict(written) | _synced_entries(aside, but=written)
            tensors = tensor_entries(aside)
            deltas = {} if base is None else _written_deltas(aside, base)
            manifest = VersionManifest(
                version=version,
                parent=parent,
                round=round_id,
                created_us=now_us(),
                config_hash=config_hash,
                seed=seed,
                groups=groups,
                files=files,
                tensors=tensors,
                base=base.manifest.version if base is not None and deltas else None,
                deltas=deltas,
            )
            (aside / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
            fsync(aside / MANIFEST)
    except OSError as error:
        raise VersionError(
            f"version {version} cannot be written to {folder}: {error}; make room there and start again: the "
            "partial folder was deleted, and nothing else was lost"
        ) from error
    return Version(path=folder, manifest=manifest)


def _written_deltas(folder: Path, base: Version) -> dict[str, DeltaEntry]:
    """Write the delta files of a folder's safetensors, synced; files that `base` does not have get none."""
    entries = {}
    for file in sorted(folder.glob("*.safetensors")):
        old, delta = base.path / file.name, folder / (file.name + SUFFIX)
        if old.is_file() and file.name in base.manifest.files and write_delta(old, file, delta):
            fsync(delta)
            made = file_entry(delta)
            entries[file.name] = DeltaEntry(
                sha256=made.sha256,
                size_bytes=made.size_bytes,
                base_sha256=base.manifest.files[file.name].sha256,
            )
    return entries


def _synced_entries(folder: Path, *, but: Container[str]) -> dict[str, FileEntry]:
    """The manifest's entries of files, after syncing them; all files are synced and hashed concurrently."""
    files = sorted(file for file in folder.iterdir() if file.name not in but)
    with ThreadPoolExecutor() as at_once:
        syncing = [at_once.submit(fsync, file) for file in files]
        entries = dict(zip((file.name for file in files), at_once.map(file_entry, files), strict=True))
        for one in syncing:
            one.result()
    return entries


def check_new(folder: Path) -> None:
    """Raise `VersionError` when a folder exists."""
    if folder.exists():
        raise VersionError(f"{folder} exists already and a version is never overwritten; name another folder")


def set_current(root: Path, version: int) -> None:
    """Point `CURRENT` at a version."""
    with written_aside(versions_folder(root) / CURRENT, durable=True) as aside:
        aside.write_text(f"{version:08d}\n")


def verify(folder: Path) -> VersionManifest:
    """Check every file of a version folder against its manifest. Raises `VersionError` naming the first mismatch."""
    manifest = read_manifest(folder)
    verify_files(folder, manifest.files)
    return manifest


def verify_files(folder: Path, entries: Mapping[str, FileEntry]) -> None:
    """Check files of a version folder against their entries. Raises `VersionError` naming the first mismatch."""
    for name in entries:
        if not (folder / name).is_file():
            raise VersionError(f"{folder}: {name} is missing; copy the folder again or publish another version")
    with ThreadPoolExecutor() as at_once:
        found = list(at_once.map(lambda name: file_entry(folder / name), entries))
    for (name, entry), seen in zip(entries.items(), found, strict=True):
        if (seen.sha256, seen.size_bytes) != (entry.sha256, entry.size_bytes):
            raise VersionError(
                f"{folder / name} is not what the manifest says (sha256 or size): the folder is damaged; restore the "
                "file from a copy, or return to an earlier version (`weir versions`, `weir rollback`)"
            )


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy the tokenizer's files of a model folder."""
    for name in TOKENIZER_FILES:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(source / name, target / name)


def num_parameters(folder: Path) -> int:
    """How many numbers the safetensors files of a folder hold, by their headers. Raises `VersionError` without any."""
    count = sum(math.prod(entry.shape) for entry in tensor_entries(folder).values())
    if not count:
        raise VersionError(
            f"{folder} has no safetensors to count parameters in: set lr, or save the model in that form"
        )
    return count


def file_entry(path: Path) -> FileEntry:
    """The manifest's entry of a file: its hash and size."""
    with path.open("rb") as file:
        return FileEntry(sha256=hashlib.file_digest(file, "sha256").hexdigest(), size_bytes=path.stat().st_size)


def tensor_entries(folder: Path) -> dict[str, TensorEntry]:
    """The tensors in the safetensors files of a folder, by their headers."""
    return {name: entry for file in sorted(folder.glob("*.safetensors")) for name, entry in _read_header(file)}


def _read_header(file: Path) -> Iterator[tuple[str, TensorEntry]]:
    with file.open("rb") as content:
        size = int.from_bytes(content.read(8), "little")
        header: dict[str, Any] = json.loads(content.read(size))
    for name, entry in header.items():
        if name != "__metadata__":
            yield name, TensorEntry(shape=entry["shape"], dtype=entry["dtype"])
