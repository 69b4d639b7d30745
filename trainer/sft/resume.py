"""Checkpoints of a cold start, from which a killed run resumes: with the same bits on as many processes as before.

Invariant: the folder beside the version folder belongs to one run, identified by a hash of settings, data and first
weights. `progress.json`, which appears whole, names the part that holds weights and moments; every rank has written its
own rows into that. The folder is deleted once the version exists, if necessary by the next start.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weir.store.atomic_file import fsync, written_aside
from weir.trainer.data.dataset import SupervisedRow, digest_of
from weir.trainer.errors import TrainerUsageError, VersionError
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.optimizer import Stepper
from weir.trainer.learner.rank_files import read_state, state_tensors, write_state
from weir.trainer.learner.saved_state import POLICY, saved_state
from weir.trainer.model.token_model import save_state
from weir.trainer.settings.config import SftConfig
from weir.trainer.versions.folder_rename import delete_leftovers
from weir.trainer.versions.version_folder import STATE_FILE

PROGRESS = "progress.json"


def run_key(config: SftConfig, rows: Iterable[SupervisedRow], model: Path) -> str:
    """The identity of a run: a hash of settings, but for the number of processes, of rows and of first weights."""
    settings = config.model_dump_json(exclude={"processes"})
    digest = hashlib.sha256(settings.encode() + digest_of(rows).encode())
    for file in sorted(model.glob("*.safetensors")):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def progress_folder(out: Path) -> Path:
    """The folder of checkpoints beside a version folder."""
    return out.with_name(f".{out.name}.progress")


def clean_up(out: Path) -> None:
    """Delete the leftovers of killed runs, and the checkpoint of a version folder that exists."""
    delete_leftovers(out.parent, out.name)
    if out.exists():
        shutil.rmtree(progress_folder(out), ignore_errors=True)


@dataclass(slots=True, kw_only=True)
class SftProgress:
    """The losses so far, and the folder that keeps them with weights and moments."""

    folder: Path
    key: str
    losses: list[float] = field(default_factory=list)  # of each optimiser step
    validation: list[float] = field(default_factory=list)  # after each epoch

    @classmethod
    def of(cls, out: Path, key: str) -> SftProgress:
        """The progress of a new run towards a version folder."""
        return cls(folder=progress_folder(out), key=key)

    def save(self, stepper: Stepper, ranks: Ranks) -> None:
        """Write a checkpoint, every rank its own rows. Raises `VersionError` where it cannot be written."""
        part = self.folder / f"step-{len(self.losses)}"
        try:
            if ranks.rank == 0:
                shutil.rmtree(part, ignore_errors=True)  # of a killed run
                part.mkdir(parents=True)
            ranks.gather(None)
            if ranks.shards:
                write_state(state_tensors(stepper, POLICY, weights=True), part)
            else:
                save_state(stepper.state() | {"weights": stepper.weights()}, part / STATE_FILE)
            if ranks.rank == 0:
                self._commit(part)
            ranks.gather(None)
        except OSError as error:
            raise VersionError(f"cannot write the checkpoint {part}: {error}; make room there") from error

    def _commit(self, part: Path) -> None:
        for file in (*part.iterdir(), part, self.folder, self.folder.parent):
            fsync(file)
        state = {"key": self.key, "losses": self.losses, "validation": self.validation, "part": part.name}
        with written_aside(self.folder / PROGRESS, durable=True) as aside:
            aside.write_text(json.dumps(state))
        for other in self.folder.iterdir():
            if other not in (part, self.folder / PROGRESS):
                shutil.rmtree(other, ignore_errors=True) if other.is_dir() else other.unlink()

    def resume(self, stepper: Stepper) -> None:
        """Load the checkpoint, if there is one, on every rank its own rows.

        Raises `TrainerUsageError` where it belongs to another run or is damaged.
        """
        if not (self.folder / PROGRESS).exists():
            return
        try:
            state: dict[str, Any] = json.loads((self.folder / PROGRESS).read_text())
            key, part = state["key"], self.folder / state["part"]
            self.losses, self.validation = state["losses"], state["validation"]
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise self._damaged(error) from error
        if key != self.key:
            raise TrainerUsageError(
                f"{self.folder} was left by a run with other settings, data or first weights; delete it to start anew"
            )
        try:
            saved = saved_state(part)
            if saved is None:
                raise VersionError(f"{part} has no state")
            read_state(stepper, POLICY, saved)
        except (OSError, EOFError, RuntimeError, KeyError, ValueError, VersionError, zipfile.BadZipFile) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> TrainerUsageError:
        kind = type(error).__name__  # its message may be a page about pickles
        return TrainerUsageError(f"{self.folder} cannot be read ({kind}); delete it to start anew")

    def forget(self) -> None:
        """Delete the checkpoint: the version exists."""
        shutil.rmtree(self.folder, ignore_errors=True)
