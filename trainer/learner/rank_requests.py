"""What a round asks of its ranks: to open a version folder, to train there, and to save the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.step_stats import StepStats
from weir.trainer.model.token_model import choose_device
from weir.trainer.settings.config import TrainerConfig

LEARNER = "learner"


def dividing(ranks: Ranks, config: TrainerConfig) -> Ranks:
    """The ranks, which divide models as the settings say; a collective operation."""
    return ranks.dividing(
        choose_device(config.device),
        replicas=config.replicas,
        offloads=config.offload_weights,
        gathers_half=config.gather_precision == "bfloat16",
        context=config.context_parallel,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Load weights and state of a folder; returns the optimiser steps taken so far."""

    folder: Path
    reference: Path
    config: TrainerConfig

    def run(self, ranks: Ranks, held: dict[str, Any]) -> int:
        """As `Request.run`."""
        from weir.trainer.learner.learner import Learner

        own = dividing(ranks, self.config)
        learner = held[LEARNER] = Learner(self.folder, self.config, reference=self.reference, ranks=own)
        return learner.num_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Take a round's optimiser steps; returns their statistics and the steps taken so far."""

    samples: list[Sample]
    fresh_version: int
    seed: int
    supervised: list[list[SupervisedRow]]

    def run(self, ranks: Ranks, held: dict[str, Any]) -> tuple[Sequence[StepStats], int]:
        """As `Request.run`."""
        learner = held[LEARNER]
        steps = learner.train(
            self.samples, fresh_version=self.fresh_version, seed=self.seed, supervised=self.supervised
        )
        return steps, learner.num_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Write the files of a version, whose tokenizer and names of tensors are those of the version `like`."""

    folder: Path
    like: Path

    def run(self, ranks: Ranks, held: dict[str, Any]) -> None:
        """As `Request.run`."""
        held[LEARNER].folder = self.like
        held[LEARNER].save(self.folder)
