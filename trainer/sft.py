"""Cold start: masked cross-entropy on chat data, from a model folder to a version folder.

Invariant: seed, data and settings decide the weights to the bit on one thread. Each optimiser step divides by the
number of its targets once; the result appears whole, by a rename, or not at all.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from weir.trainer.batching import lay_out, micro_batches
from weir.trainer.chat_rows import ChatRenderer, ChatRow, conversation_rows, read_conversations
from weir.trainer.config import SftConfig
from weir.trainer.errors import NotFinite, TrainerUsageError
from weir.trainer.model import TokenModel, choose_device, load_model, save_model
from weir.trainer.progress import progress
from weir.trainer.schedule import learning_rate
from weir.trainer.versions import Version, check_new, write_version

BUCKET_TOKENS = 4  # rows whose lengths differ by less are as good as equally long


@dataclass(frozen=True, slots=True, kw_only=True)
class SftReport:
    """What a cold start did."""

    version: Version
    losses: list[float]  # of each optimiser step, per target token
    seconds: float
    num_rows: int
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
) -> SftReport:
    """Train `model` on a JSON Lines file of conversations and write the version folder `out`.

    Raises `TrainerUsageError` for data that cannot be read or that no row of fits `max_tokens`, `NotFinite` when the
    loss or gradient is not a number, `VersionError` when `out` is there already.
    """
    started = time.monotonic()
    check_new(out)
    torch.set_num_threads(config.torch_threads)
    torch.manual_seed(config.seed)
    rows = [row for conversation in read_conversations(data) for row in conversation_rows(conversation, renderer)]
    kept = [row for row in rows if len(row.ids) <= config.max_tokens]
    if not kept:
        raise TrainerUsageError(f"none of {len(rows)} rows has at most {config.max_tokens} tokens; raise max_tokens")
    network = load_model(model, choose_device(config.device))
    losses = _train(network, kept, config, console or Console(quiet=True))
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
    return SftReport(
        version=version,
        losses=losses,
        seconds=time.monotonic() - started,
        num_rows=len(kept),
        num_targets=config.epochs * sum(int(row.targets.sum()) for row in kept),
        num_too_long=len(rows) - len(kept),
    )


def _train(network: TokenModel, rows: Sequence[ChatRow], config: SftConfig, console: Console) -> list[float]:
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
    )
    batches = list(_batches(rows, config))
    losses: list[float] = []
    with progress(console, "sft", len(batches)) as advance:
        for step, batch in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(
                    step,
                    config.lr,
                    schedule="cosine",
                    warmup_steps=config.warmup_steps,
                    total_steps=len(batches),
                    min_ratio=config.min_lr_ratio,
                )
            losses.append(sft_step(network, optimizer, batch, config))
            advance(1, f"loss {losses[-1]:.3f}")
    return losses


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
