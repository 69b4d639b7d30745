"""A cold start on several processes of this machine: ranks that train, and then write the result.

Invariant: all ranks get the same job. A run that is killed, with its ranks, resumes from its last checkpoint as a run
in one process does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.launch.pool import RankPool
from weir.trainer.learner.distributed import Ranks
from weir.trainer.model.token_model import choose_device
from weir.trainer.settings.config import SftConfig
from weir.trainer.settings.launch import LaunchConfig
from weir.trainer.sft.resume import SftProgress
from weir.trainer.sft.supervised_learner import SupervisedLearner, batches_of

LEARNER = "learner"
RESUMED = "the next start resumes from its last checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainAll:
    """Take all steps of a cold start; returns the losses of steps and of epochs."""

    config: SftConfig
    model: Path
    rows: list[SupervisedRow]
    held_back: list[SupervisedRow]
    progress: SftProgress

    def run(self, ranks: Ranks, held: dict[str, Any]) -> tuple[list[float], list[float]]:
        """As `Request.run`."""
        own = ranks.dividing(
            choose_device(self.config.device),
            replicas=self.config.replicas,
            offloads=self.config.offload_weights,
            context=self.config.context_parallel,
        )
        learner = SupervisedLearner(self.config, self.model, len(batches_of(self.rows, self.config)), own)
        learner.train(self.rows, self.held_back, self.progress, Console(quiet=True))
        held[LEARNER] = learner
        return self.progress.losses, self.progress.validation


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAll:
    """Write the result into an existing folder."""

    folder: Path

    def run(self, ranks: Ranks, held: dict[str, Any]) -> None:
        """As `Request.run`."""
        held[LEARNER].save(self.folder)


class TrainedOnRanks:
    """What ranks have trained, until they have written it."""

    def __init__(
        self,
        config: SftConfig,
        model: Path,
        rows: Sequence[SupervisedRow],
        held_back: Sequence[SupervisedRow],
        progress: SftProgress,
    ) -> None:
        """Train. Raises `NotFinite`, and `TrainerError` where a process dies."""
        job = TrainAll(
            config=config, model=model.absolute(), rows=list(rows), held_back=list(held_back), progress=progress
        )
        self._ranks = RankPool(config.processes, config.device, LaunchConfig(), resumed=RESUMED)
        try:
            progress.losses, progress.validation = self._ranks.call(job)
        except BaseException:
            self._ranks.close()
            raise

    def save(self, folder: Path) -> None:
        """Have the ranks write into an existing folder, and end them. Raises `TrainerError` where a process dies."""
        self._ranks.call(SaveAll(folder=folder.absolute()))
        self._ranks.close()
