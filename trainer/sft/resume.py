"""How far a cold start has come: what a killed run goes on from, to the same bits.

Invariant: the file beside the version folder belongs to one run (settings, data and first weights, by hash), is written
aside and renamed, and is deleted when the version is there, by the next start where the run was killed in between.
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
from weir.trainer.model.token_model import save_state
from weir.trainer.settings.config import SftConfig
from weir.trainer.versions.folder_rename import delete_leftovers


def run_key(config: SftConfig, rows: Iterable[SupervisedRow], model: Path) -> str:
    """What makes two runs the same: settings, rows, first weights."""
    digest = hashlib.sha256(config.model_dump_json().encode() + digest_of(rows).encode())
    for file in sorted(model.glob("*.safetensors")):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def progress_file(out: Path) -> Path:
    """Where the progress towards a version folder is kept."""
    return out.with_name(f".{out.name}.progress.pt")


def delete_left(out: Path) -> None:
    """Delete what killed runs wrote aside, and the progress towards a version folder that is there."""
    for name in (out.name, progress_file(out).name):
        delete_leftovers(out.parent, name)
    if out.exists():
        progress_file(out).unlink(missing_ok=True)


@dataclass(slots=True, kw_only=True)
class SftProgress:
    """The losses so far, and where they are kept with weights and moments."""

    file: Path
    key: str
    losses: list[float] = field(default_factory=list)  # of each optimiser step
    validation: list[float] = field(default_factory=list)  # after each epoch

    @classmethod
    def of(cls, out: Path, key: str) -> SftProgress:
        """Progress towards a version folder, none so far."""
        return cls(file=progress_file(out), key=key)

    def save(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Write what a later process needs to go on. Raises `VersionError` where that cannot be written."""
        state: dict[str, Any] = {"key": self.key, "losses": self.losses, "validation": self.validation}
        state |= {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with written_aside(self.file) as aside:
                aside.unlink()  # `save_state` makes the file itself, and syncs it
                save_state(state, aside)
        except OSError as error:
            raise VersionError(f"cannot keep what to go on from in {self.file}: {error}; make room there") from error

    def resume(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Go on from what was saved, where there is something.

        Raises `TrainerUsageError` where it is another run's, or is damaged.
        """
        if not self.file.exists():
            return
        try:
            state: dict[str, Any] = torch.load(self.file, map_location="cpu", weights_only=True)
        except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
            what = type(error).__name__  # its words are a page, about pickles
            raise TrainerUsageError(f"{self.file} cannot be read ({what}); delete it to start anew") from error
        if state["key"] != self.key:
            raise TrainerUsageError(
                f"{self.file} was left by a run with other settings, data or first weights; delete it to start anew"
            )
        self.losses, self.validation = state["losses"], state["validation"]
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])

    def forget(self) -> None:
        """The version is there: nothing to go on with."""
        self.file.unlink(missing_ok=True)
