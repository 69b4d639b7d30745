"""Replays a past round with its groups, settings and parent, and compares the files of the version bit for bit.

Invariant: the store is not changed, except that missing verdicts are added; the replayed version is written to a
temporary folder. A replay needs the round's manifest, its parent's folder, and the hashes of its version's files, a
copy of which stays beside the round's manifest after the version folder is deleted.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from weir.store.atomic_file import written_aside
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import RoundRow
from weir.store.config import StoreConfig
from weir.store.shared.object_store import objects_of
from weir.trainer.errors import RoundError, TrainerUsageError
from weir.trainer.rounds.claims import ClaimedRound, parent_folder, pinned_calls
from weir.trainer.rounds.metrics import METRICS_FILE
from weir.trainer.rounds.prepare import prepare
from weir.trainer.rounds.restored_state import lacks_state, restored
from weir.trainer.rounds.supervised_mix import MixedData
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.pinning import config_hash
from weir.trainer.timings import RoundTimes
from weir.trainer.versions.object_store import fetch_version
from weir.trainer.versions.version_folder import (
    MANIFEST,
    FileEntry,
    VersionManifest,
    file_entry,
    read_manifest,
    round_folder,
    verify,
    version_path,
)

VERSION_COPY = "version.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The comparison of a replayed round with the original."""

    round: int
    version: int
    num_files: int
    differing: list[str]  # files of the version whose bits differ


def keep_manifest(store: StoreConfig, manifest: VersionManifest) -> None:
    """Copy a version's manifest beside its round's, for replays after the folder is deleted; also to object storage."""
    assert manifest.round is not None
    folder, text = round_folder(store.folder, manifest.round), msgspec.json.encode(manifest)
    folder.mkdir(parents=True, exist_ok=True)
    with written_aside(folder / VERSION_COPY, durable=True) as aside:
        aside.write_bytes(text)
    if (objects := objects_of(store)) is not None:
        objects.put(_shared_copy(manifest.round), text)


def replay_round(
    catalog: Catalog,
    store: StoreConfig,
    config: TrainerConfig,
    number: int,
    *,
    model_path: Path,
    mixed: MixedData,
    console: Console,
) -> Replay:
    """Repeat a committed round and compare.

    Raises `TrainerUsageError` for a round that was never committed, `RoundError` where its parent, its manifest or the
    hashes of its files are missing, and as `prepare` and the backend do.
    """
    claimed = _claimed(catalog, number)
    for version in (claimed.parent, claimed.version):
        fetch_version(store, version)
    before = _files_of(store, claimed)
    pinned = config.continuing(claimed.config)
    parent = _parent(store, claimed, model_path)
    data = prepare(claimed, pinned_calls(store, claimed, pinned), catalog, pinned, console, RoundTimes())
    from weir.trainer.backend import open_backend

    if lacks_state(parent):
        learner = restored(parent, catalog, store, pinned, model_path=model_path, mixed=mixed, console=console)
    else:
        learner = open_backend(parent, pinned, reference=Path(pinned.reference_path or model_path))
    learner.train(
        data.samples,
        fresh_version=claimed.parent,
        seed=claimed.seed + claimed.round,
        supervised=mixed.of_round(claimed, pinned, learner.num_steps, len(data.samples)),
    )
    folder = round_folder(store.folder, number)
    folder.mkdir(parents=True, exist_ok=True)  # on a machine that did not run it
    with tempfile.TemporaryDirectory(dir=folder) as name:
        learner.save(Path(name))
        after = {file.name: file_entry(file) for file in Path(name).iterdir()}
    return Replay(
        round=number,
        version=claimed.version,
        num_files=len(before),
        differing=sorted(file for file in before | after if before.get(file) != after.get(file)),
    )


def _claimed(catalog: Catalog, number: int) -> ClaimedRound:
    rounds: dict[int, RoundRow] = {row.round_id: row for row in catalog.rounds()}
    row = rounds.get(number)
    if row is None or row.state != "committed":
        done = [round_id for round_id, found in rounds.items() if found.state == "committed"]
        known = f"{min(done)} to {max(done)}" if done else "none"
        raise TrainerUsageError(f"cannot repeat round {number}: it was never committed; committed rounds: {known}")
    claimed = msgspec.convert(row.manifest, ClaimedRound)
    if config_hash(claimed.config) != claimed.config_hash:
        raise RoundError(f"the manifest of round {number} in the catalog does not match its own config hash")
    return claimed


def _files_of(store: StoreConfig, claimed: ClaimedRound) -> dict[str, FileEntry]:
    """The files of the round's version, without its metrics, which hold times."""
    folder, copy = version_path(store.folder, claimed.version), round_folder(store.folder, claimed.round) / VERSION_COPY
    if folder.exists():
        manifest = read_manifest(folder)
    elif (text := _kept_manifest(store, claimed, copy)) is not None:
        manifest = msgspec.json.decode(text, type=VersionManifest)
    else:
        raise RoundError(
            f"cannot compare round {claimed.round}: the hashes of its files are lost, {folder} and {copy} do not exist"
        )
    return {name: entry for name, entry in manifest.files.items() if name != METRICS_FILE}


def _kept_manifest(store: StoreConfig, claimed: ClaimedRound, copy: Path) -> bytes | None:
    objects = objects_of(store)
    if copy.exists() or objects is None:
        return copy.read_bytes() if copy.exists() else None
    return objects.read(_shared_copy(claimed.round))


def _shared_copy(round_id: int) -> str:
    return f"rounds/{round_id:08d}/{VERSION_COPY}"


def _parent(store: StoreConfig, claimed: ClaimedRound, model_path: Path) -> Path:
    try:
        folder = parent_folder(store.folder, claimed, model_path)
    except RoundError as error:
        raise RoundError(f"{error}; raise trainer.keep_versions to be able to repeat more rounds") from error
    if (folder / MANIFEST).exists():
        verify(folder)
    return folder
