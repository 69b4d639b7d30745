"""Cold start: masked cross-entropy on chat data, from a model folder to a version folder.

Invariant: on one thread, seed, data and settings determine the weights to the bit. The version folder appears by a
rename.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from weir.trainer.data.chat_rows import ChatRenderer
from weir.trainer.data.dataset import Line, SupervisedRow, read_data
from weir.trainer.data.rows import RowMaker
from weir.trainer.errors import TrainerUsageError
from weir.trainer.settings.config import SftConfig
from weir.trainer.sft.health import SftHealth, health
from weir.trainer.sft.ranks import TrainedOnRanks
from weir.trainer.sft.resume import SftProgress, clean_up, run_key
from weir.trainer.sft.supervised_learner import SupervisedLearner, batches_of
from weir.trainer.versions.version_folder import Version, check_new, num_parameters, write_version

METRICS_FILE = "metrics.json"  # in the version folder


@dataclass(frozen=True, slots=True, kw_only=True)
class SftReport:
    """The outcome of a cold start."""

    version: Version
    losses: list[float]  # of each optimiser step, in nats per target token
    validation_losses: list[float]  # of the rows held back, after each epoch, in nats per target token
    seconds: float
    num_rows: int
    num_held_back: int  # rows that the validation losses are of
    num_targets: int  # tokens trained on, over all epochs
    num_too_long: int  # rows dropped for their length
    health: SftHealth

    @property
    def figures(self) -> dict[str, Any]:
        """The figures that `metrics.json` of the version folder holds, which do not depend on time."""
        return _figures(self.losses, self.validation_losses, self.num_rows, self.num_held_back, self.health)


def _figures(
    losses: Sequence[float], validation: Sequence[float], num_rows: int, num_held_back: int, found: SftHealth
) -> dict[str, Any]:
    return {
        "rows": num_rows,
        "rows_held_back": num_held_back,
        "optimizer_steps": len(losses),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "validation_losses": list(validation),
        **asdict(found),
    }


def run_sft(
    config: SftConfig,
    *,
    data: Path,
    model: Path,
    out: Path,
    renderer: ChatRenderer,
    console: Console | None = None,
    on_step: Callable[[int], None] = lambda _: None,
) -> SftReport:
    """Train `model` on a JSON Lines file of conversations and write the version folder `out`.

    A killed run resumes from its last checkpoint when it is started again. `on_step` gets the number of optimiser
    steps taken.

    Raises `TrainerUsageError` for data that cannot be read or of which no row fits `max_tokens`, `NotFinite` when a
    loss, gradient or weight is not finite, `VersionError` when `out` exists.
    """
    started = time.monotonic()
    clean_up(out)
    check_new(out)
    config = _with_defaults(config, model, console or Console(quiet=True))
    maker = RowMaker(model, lambda: renderer, config.max_tokens)
    rows, held_back = split_rows(read_data(data), maker, config)
    progress = SftProgress.of(out, run_key(config, [*rows, *held_back], model))
    trained = _trained(config, model, rows, held_back, progress, console or Console(quiet=True), on_step)
    found = health(rows, maker, batches_of(rows, config), progress.losses)
    figures = _figures(progress.losses, progress.validation, len(rows), len(held_back), found)

    def write_files(folder: Path) -> None:
        trained.save(folder)
        (folder / METRICS_FILE).write_text(json.dumps(figures, sort_keys=True))

    version = write_version(
        out,
        write_files,
        version=config.version,
        parent=None,
        round_id=None,
        config_hash=hashlib.sha256(config.model_dump_json().encode()).hexdigest(),
        seed=config.seed,
        groups=[],
    )
    progress.forget()
    return SftReport(
        version=version,
        losses=progress.losses,
        validation_losses=progress.validation,
        seconds=time.monotonic() - started,
        num_rows=len(rows),
        num_held_back=len(held_back),
        num_targets=config.epochs * sum(row.num_targets for row in rows),
        num_too_long=maker.num_too_long,
        health=found,
    )


def _with_defaults(config: SftConfig, model: Path, console: Console) -> SftConfig:
    """The settings with the learning rate for the model's size, said aloud where it was not set."""
    found = config.with_defaults(lambda: num_parameters(model))
    if found is not config:
        console.print(f"lr is not set: {found.peak_lr:g}, by the model's size (docs/models.md)", soft_wrap=True)
    return found


def _trained(
    config: SftConfig,
    model: Path,
    rows: Sequence[SupervisedRow],
    held_back: Sequence[SupervisedRow],
    progress: SftProgress,
    console: Console,
    on_step: Callable[[int], None],
) -> SupervisedLearner | TrainedOnRanks:
    """The trained model, in memory or in the files of its ranks."""
    if config.processes > 1 or config.offload_weights:
        console.print(f"sft: training on {config.processes} processes")
        on_ranks = TrainedOnRanks(config, model, rows, held_back, progress)
        on_step(len(progress.losses))
        return on_ranks
    learner = SupervisedLearner(config, model, len(batches_of(rows, config)))
    learner.train(rows, held_back, progress, console, on_step)
    return learner


def split_rows(
    lines: Sequence[Line], maker: RowMaker, config: SftConfig
) -> tuple[list[SupervisedRow], list[SupervisedRow]]:
    """Rows to train on and rows held back for validation. Raises `TrainerUsageError` with none to train on.

    All rows of a line are on the same side, drawn from the seed.
    """
    draws = np.random.default_rng([config.seed, 1]).random(len(lines))
    trained: list[SupervisedRow] = []
    held_back: list[SupervisedRow] = []
    for line, draw in zip(lines, draws, strict=True):
        (held_back if draw < config.validation_share else trained).extend(maker.rows(line))
    if not trained:
        raise TrainerUsageError(
            f"no row is left to train on: {maker.num_too_long} have more than {config.max_tokens} tokens, "
            f"{len(held_back)} are held back; raise max_tokens or lower validation_share"
        )
    return trained, held_back
