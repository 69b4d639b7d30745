"""Cold start: masked cross-entropy on chat data, from a model folder to a version folder.

Invariant: on one thread, seed, data and settings determine the weights to the bit. Each optimiser step divides once, by
the number of its targets. The version folder appears by a rename.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from weir.trainer.data.chat_rows import ChatRenderer
from weir.trainer.data.dataset import Line, SupervisedRow, read_data
from weir.trainer.data.rows import RowMaker
from weir.trainer.errors import NotFinite, TrainerUsageError
from weir.trainer.learner.optimizer import learning_rate
from weir.trainer.learner.supervised_loss import accumulate_supervised, mean_loss
from weir.trainer.model.token_model import TokenModel, choose_device, is_finite, load_model, save_model
from weir.trainer.progress import progress as progress_bar
from weir.trainer.settings.config import SftConfig
from weir.trainer.sft.health import SftHealth, health
from weir.trainer.sft.resume import SftProgress, clean_up, run_key
from weir.trainer.versions.version_folder import Version, check_new, write_version

METRICS_FILE = "metrics.json"  # in the version folder
BUCKET_TOKENS = 4  # rows whose lengths fall into the same bucket count as equally long


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
    torch.set_num_threads(config.torch_threads)
    maker = RowMaker(model, lambda: renderer, config.max_tokens)
    rows, held_back = split_rows(read_data(data), maker, config)
    network = load_model(model, choose_device(config.device))
    progress = SftProgress.of(out, run_key(config, [*rows, *held_back], model))
    _train(network, rows, held_back, config, progress, console or Console(quiet=True), on_step)
    if not is_finite(network):
        raise NotFinite(f"not every weight is a finite number, and nothing was written; lower lr = {config.lr:g}")
    found = health(rows, maker, list(_batches(rows, config)), progress.losses)
    figures = _figures(progress.losses, progress.validation, len(rows), len(held_back), found)

    def write_files(folder: Path) -> None:
        save_model(network, folder, tokenizer_from=model)
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


def _train(
    network: TokenModel,
    rows: Sequence[SupervisedRow],
    held_back: Sequence[SupervisedRow],
    config: SftConfig,
    progress: SftProgress,
    console: Console,
    on_step: Callable[[int], None],
) -> None:
    """Take the remaining optimiser steps."""
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
    )
    progress.resume(network, optimizer)
    batches = list(_batches(rows, config))
    steps_per_epoch = len(batches) // config.epochs
    with progress_bar(console, "sft", len(batches)) as advance:
        advance(len(progress.losses), "")
        for step in range(len(progress.losses), len(batches)):
            torch.manual_seed(config.seed + step)  # for models with dropout: a resumed run draws the same
            for group in optimizer.param_groups:
                group["lr"] = _rate(step, len(batches), config)
            progress.losses.append(sft_step(network, optimizer, batches[step], config))
            if held_back and (step + 1) % steps_per_epoch == 0:
                progress.validation.append(mean_loss(network, held_back, **_batching(network, config)))
            if config.checkpoint_steps and (step + 1) % config.checkpoint_steps == 0:
                progress.save(network, optimizer)
            advance(1, f"loss {progress.losses[-1]:.3f}")
            on_step(step + 1)


def _rate(step: int, num_steps: int, config: SftConfig) -> float:
    return learning_rate(
        step,
        config.lr,
        schedule="cosine",
        warmup_steps=config.warmup_steps,
        total_steps=num_steps,
        min_ratio=config.min_lr_ratio,
    )


def _batching(network: TokenModel, config: SftConfig) -> dict[str, Any]:
    """The arguments that say how rows become batches, and on which device."""
    device = next(network.parameters()).device
    return {"token_budget": config.token_budget, "layout": network.layout(), "device": device}


def sft_step(
    network: TokenModel, optimizer: torch.optim.Optimizer, rows: Sequence[SupervisedRow], config: SftConfig
) -> float:
    """Take one optimiser step on the mean cross-entropy of the rows' targets; returns the loss before it, in nats.

    Raises `NotFinite`, without a step, where the loss or the gradient's norm is not finite.
    """
    optimizer.zero_grad(set_to_none=True)
    loss = accumulate_supervised(network, rows, **_batching(network, config))
    norm = float(torch.nn.utils.clip_grad_norm_(network.parameters(), config.grad_clip))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise NotFinite(f"the step was not taken: loss {loss}, gradient norm {norm}; lower the learning rate")
    optimizer.step()
    return loss


def _batches(rows: Sequence[SupervisedRow], config: SftConfig) -> Iterator[list[SupervisedRow]]:
    """Batches of rows of about the same length, in random order, epoch after epoch."""
    random = np.random.default_rng(config.seed)
    for _ in range(config.epochs):
        keys = [(len(row.ids) // BUCKET_TOKENS, draw) for row, draw in zip(rows, random.random(len(rows)), strict=True)]
        order = sorted(range(len(rows)), key=keys.__getitem__)
        starts = np.arange(0, len(order), config.batch_size)
        for start in random.permutation(starts):
            yield [rows[i] for i in order[start : start + config.batch_size]]
