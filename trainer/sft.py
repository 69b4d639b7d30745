"""Cold start: masked cross-entropy on chat data, from a model folder to a version folder.

Invariant: seed, data and settings decide the weights to the bit on one thread. Each optimiser step divides by the
number of its targets once; the result appears whole, by a rename, or not at all.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from weir.trainer.batching import lay_out, micro_batches
from weir.trainer.chat_rows import ChatRenderer, ChatRow, Conversation, conversation_rows, read_conversations
from weir.trainer.config import SftConfig
from weir.trainer.errors import NotFinite, TrainerUsageError
from weir.trainer.model import TokenModel, choose_device, load_model, save_model
from weir.trainer.progress import progress as progress_bar
from weir.trainer.schedule import learning_rate
from weir.trainer.sft_progress import SftProgress, run_key
from weir.trainer.versions import Version, check_new, write_version

BUCKET_TOKENS = 4  # rows whose lengths differ by less are as good as equally long


@dataclass(frozen=True, slots=True, kw_only=True)
class SftReport:
    """What a cold start did."""

    version: Version
    losses: list[float]  # of each optimiser step, per target token
    validation_losses: list[float]  # of the rows held back, after each epoch, per target token
    seconds: float
    num_rows: int
    num_held_back: int  # rows that the validation losses are of
    num_targets: int  # tokens trained on, over all epochs
    num_too_long: int  # rows left out


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

    A run that was killed goes on from its last checkpoint when it is started again. `on_step` is told how many
    optimiser steps were taken.

    Raises `TrainerUsageError` for data that cannot be read or that no row of fits `max_tokens`, `NotFinite` when the
    loss or gradient is not a number, `VersionError` when `out` is there already.
    """
    started = time.monotonic()
    check_new(out)
    torch.set_num_threads(config.torch_threads)
    torch.manual_seed(config.seed)
    rows, held_back, num_too_long = split_rows(read_conversations(data), renderer, config)
    network = load_model(model, choose_device(config.device))
    progress = SftProgress.of(out, run_key(config, data, model))
    _train(network, rows, held_back, config, progress, console or Console(quiet=True), on_step)
    version = write_version(
        out,
        lambda folder: save_model(network, folder, tokenizer_from=model),
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
        num_targets=config.epochs * sum(int(row.targets.sum()) for row in rows),
        num_too_long=num_too_long,
    )


def split_rows(
    conversations: Sequence[Conversation], renderer: ChatRenderer, config: SftConfig
) -> tuple[list[ChatRow], list[ChatRow], int]:
    """Rows to train on, rows held back, and how many were too long. Raises `TrainerUsageError` with none to train on.

    A conversation is held back whole, by a draw that the seed decides.
    """
    draws = np.random.default_rng([config.seed, 1]).random(len(conversations))
    trained: list[ChatRow] = []
    held_back: list[ChatRow] = []
    too_long = 0
    for conversation, draw in zip(conversations, draws, strict=True):
        for row in conversation_rows(conversation, renderer):
            if len(row.ids) > config.max_tokens:
                too_long += 1
            else:
                (held_back if draw < config.validation_share else trained).append(row)
    if not trained:
        raise TrainerUsageError(
            f"no row is left to train on: {too_long} have more than {config.max_tokens} tokens, {len(held_back)} are "
            "held back; raise max_tokens or lower validation_share"
        )
    return trained, held_back, too_long


def _train(
    network: TokenModel,
    rows: Sequence[ChatRow],
    held_back: Sequence[ChatRow],
    config: SftConfig,
    progress: SftProgress,
    console: Console,
    on_step: Callable[[int], None],
) -> None:
    """Take the steps that the progress lacks."""
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
    )
    progress.resume(network, optimizer)
    batches = list(_batches(rows, config))
    of_epoch = len(batches) // config.epochs
    with progress_bar(console, "sft", len(batches)) as advance:
        advance(len(progress.losses), "")
        for step in range(len(progress.losses), len(batches)):
            for group in optimizer.param_groups:
                group["lr"] = _rate(step, len(batches), config)
            progress.losses.append(sft_step(network, optimizer, batches[step], config))
            if held_back and (step + 1) % of_epoch == 0:
                progress.validation.append(mean_loss(network, held_back, config.token_budget))
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


@torch.no_grad()
def mean_loss(network: TokenModel, rows: Sequence[ChatRow], token_budget: int) -> float:
    """The mean cross-entropy of all targets of the rows."""
    device, layout = next(network.parameters()).device, network.layout()
    parts = micro_batches(rows, token_budget, layout)
    total = sum(-float(network(lay_out(part, layout, device)).logprobs.sum()) for part in parts)
    return total / sum(int(row.targets[1:].sum()) for row in rows)


def sft_step(
    network: TokenModel, optimizer: torch.optim.Optimizer, rows: Sequence[ChatRow], config: SftConfig
) -> float:
    """One optimiser step over the mean cross-entropy of all targets of the rows; the loss before the step."""
    optimizer.zero_grad(set_to_none=True)
    loss = accumulate(network, rows, config.token_budget)
    norm = float(torch.nn.utils.clip_grad_norm_(network.parameters(), config.grad_clip))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise NotFinite(f"the step was not taken: loss {loss}, gradient norm {norm}; lower the learning rate")
    optimizer.step()
    return loss


def accumulate(network: TokenModel, rows: Sequence[ChatRow], token_budget: int) -> float:
    """Add the gradient of the rows' mean cross-entropy to the parameters, micro-batch by micro-batch; the mean."""
    device = next(network.parameters()).device
    denominator = sum(int(row.targets[1:].sum()) for row in rows)
    total = 0.0
    layout = network.layout()
    for part in micro_batches(rows, token_budget, layout):
        loss = -network(lay_out(part, layout, device)).logprobs.sum() / denominator
        loss.backward()
        total += float(loss.detach())
    return total


def _batches(rows: Sequence[ChatRow], config: SftConfig) -> Iterator[list[ChatRow]]:
    """Batches of rows of about the same length, in random order, epoch after epoch."""
    random = np.random.default_rng(config.seed)
    for _ in range(config.epochs):
        keys = [(len(row.ids) // BUCKET_TOKENS, draw) for row, draw in zip(rows, random.random(len(rows)), strict=True)]
        order = sorted(range(len(rows)), key=keys.__getitem__)
        starts = np.arange(0, len(order), config.batch_size)
        for start in random.permutation(starts):
            yield [rows[i] for i in order[start : start + config.batch_size]]
