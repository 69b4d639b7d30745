"""Checkpoints of a cold start, from which a killed run resumes with the same bits.

Invariant: the file beside the version folder belongs to one run, identified by a hash of settings, data and first
weights. It is deleted once the version exists, if necessary by the next start.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from weir.store.atomic_file import written_aside
from weir.trainer.data.dataset import SupervisedRow, digest_of
from weir.trainer.errors import TrainerUsageError, VersionError
from weir.trainer.learner.optimizer import Stepper
from weir.trainer.model.token_model import save_state
from weir.trainer.settings.config import SftConfig
from weir.trainer.versions.folder_rename import delete_leftovers


def run_key(config: SftConfig, rows: Iterable[SupervisedRow], model: Path) -> str:
    """The identity of a run: a hash of settings, rows and first weights."""
    digest = hashlib.sha256(config.model_dump_json().encode() + digest_of(rows).encode())
    for file in sorted(model.glob("*.safetensors")):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def progress_file(out: Path) -> Path:
    """The checkpoint file beside a version folder."""
    return out.with_name(f".{out.name}.progress.pt")


def clean_up(out: Path) -> None:
    """Delete the leftovers of killed runs, and the checkpoint of a version folder that exists."""
    for name in (out.name, progress_file(out).name):
        delete_leftovers(out.parent, name)
    if out.exists():
        progress_file(out).unlink(missing_ok=True)


@dataclass(slots=True, kw_only=True)
class SftProgress:
    """The losses so far, and the file that keeps them with weights and moments."""

    file: Path
    key: str
    losses: list[float] = field(default_factory=list)  # of each optimiser step
    validation: list[float] = field(default_factory=list)  # after each epoch

    @classmethod
    def of(cls, out: Path, key: str) -> SftProgress:
        """The progress of a new run towards a version folder."""
        return cls(file=progress_file(out), key=key)

    def save(self, stepper: Stepper, *, writes: bool = True) -> None:
        """Write a checkpoint; all ranks call it, one writes. Raises `VersionError` where it cannot be written."""
        state: dict[str, Any] = {"key": self.key, "losses": self.losses, "validation": self.validation}
        state |= {"weights": stepper.weights(), "steps": stepper.state()}
        if not writes:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with written_aside(self.file) as aside:
                aside.unlink()  # `save_state` makes the file itself, and syncs it
                save_state(state, aside)
        except OSError as error:
            raise VersionError(f"cannot write the checkpoint {self.file}: {error}; make room there") from error

    def resume(self, stepper: Stepper) -> None:
        """Load the checkpoint, if there is one.

        Raises `TrainerUsageError` where it belongs to another run or is damaged.
        """
        if not self.file.exists():
            return
        try:
            state: dict[str, Any] = torch.load(self.file, map_location="cpu", weights_only=True)
        except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
            kind = type(error).__name__  # its message is a page about pickles
            raise TrainerUsageError(f"{self.file} cannot be read ({kind}); delete it to start anew") from error
        if state["key"] != self.key:
            raise TrainerUsageError(
                f"{self.file} was left by a run with other settings, data or first weights; delete it to start anew"
            )
        self.losses, self.validation = state["losses"], state["validation"]
        stepper.load_weights(state["weights"])
        stepper.load(state["steps"])

    def forget(self) -> None:
        """Delete the checkpoint: the version exists."""
        self.file.unlink(missing_ok=True)
