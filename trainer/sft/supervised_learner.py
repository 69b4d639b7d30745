"""Takes the optimiser steps of a cold start, in one process or as one of several ranks, with all weights or adapters.

Invariant: on one thread, seed, rows and settings determine the weights to the bit; ranks and micro-batches change only
memory and time. Each step divides once, by the number of its targets. A loss, gradient or weight that is not finite
stops all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.errors import NotFinite
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.loading import lora_shape, open_model
from weir.trainer.learner.optimizer import Stepper
from weir.trainer.learner.rank_files import write_weights
from weir.trainer.learner.supervised_loss import accumulate_supervised, mean_loss
from weir.trainer.model.lora import merged
from weir.trainer.model.stored_tensors import BytesRead
from weir.trainer.model.token_model import choose_device, is_finite, save_model
from weir.trainer.progress import progress as progress_bar
from weir.trainer.settings.config import SftConfig, TrainerConfig
from weir.trainer.sft.resume import SftProgress

BUCKET_TOKENS = 4  # rows whose lengths fall into the same bucket count as equally long


def batches_of(rows: Sequence[SupervisedRow], config: SftConfig) -> list[list[SupervisedRow]]:
    """The rows of each step: rows of about the same length, in random order, epoch after epoch."""
    return list(_batches(rows, config))


class SupervisedLearner:
    """A model and its AdamW. `model` is the folder of the first weights, `num_steps` the steps of the whole run."""

    def __init__(self, config: SftConfig, model: Path, num_steps: int, ranks: Ranks = Ranks()) -> None:
        torch.set_num_threads(config.torch_threads)
        self.config = config
        self.ranks = ranks
        self.folder = model
        self.device = choose_device(config.device)
        self.lora = lora_shape(config)
        self.read = BytesRead()  # of the folder
        self.model = open_model(
            model,
            self.device,
            ranks,
            count=self.read,
            precision=config.precision,
            checkpointing=config.gradient_checkpointing,
            offloads=config.offload_activations,
            compiled=config.compile_layers,
            lora=self.lora,
            seed=config.seed,
        )
        self._batching: dict[str, Any] = {
            "token_budget": config.token_budget,
            "layout": self.model.layout(),
            "device": self.device,
        }
        self.stepper = Stepper(
            self.model, _steps(config, num_steps), lr=config.peak_lr, weight_decay=config.weight_decay
        )

    def train(
        self,
        rows: Sequence[SupervisedRow],
        held_back: Sequence[SupervisedRow],
        progress: SftProgress,
        console: Console,
        on_step: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Take the remaining steps. Raises `NotFinite`, and as `SftProgress`."""
        config = self.config
        progress.resume(self.stepper)
        batches = batches_of(rows, config)
        steps_per_epoch = len(batches) // config.epochs
        with progress_bar(console, "sft", len(batches)) as advance:
            advance(len(progress.losses), "")
            for step in range(len(progress.losses), len(batches)):
                torch.manual_seed(config.seed + step)  # for models with dropout: a resumed run draws the same
                progress.losses.append(self.step(batches[step]))
                if held_back and (step + 1) % steps_per_epoch == 0:
                    progress.validation.append(mean_loss(self.model, held_back, **self._batching))
                if config.checkpoint_steps and (step + 1) % config.checkpoint_steps == 0:
                    progress.save(self.stepper, self.ranks)
                advance(1, f"loss {progress.losses[-1]:.3f}")
                on_step(step + 1)
        if not all(self.ranks.gather(is_finite(self.model))):
            raise NotFinite(
                f"not every weight is a finite number, and nothing was written; lower lr = {config.peak_lr:g}"
            )

    def step(self, rows: Sequence[SupervisedRow]) -> float:
        """Take one step on the mean cross-entropy of the rows' targets; returns the loss before it, in nats.

        Raises `NotFinite`, without a step, where the loss or the gradient's norm is not finite.
        """
        self.stepper.clear()
        loss = accumulate_supervised(self.model, rows, ranks=self.ranks, **self._batching)
        norm = self.stepper.clip()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise NotFinite(f"the step was not taken: loss {loss}, gradient norm {norm}; lower the learning rate")
        self.stepper.step()
        return loss

    def save(self, folder: Path) -> None:
        """Write weights, with adapters merged into them, configuration and tokenizer; all ranks call it.

        Each writes its own rows. Raises OSError.
        """
        if self.ranks.shards:
            write_weights(
                self.model,
                self.stepper,
                folder,
                like_folder=self.folder,
                ranks=self.ranks,
                averaged=False,
                lora=self.lora,
            )
            return
        weights = self.stepper.weights()
        whole = weights if self.lora is None else merged(weights, self.lora)
        save_model(self.model, folder, tokenizer_from=self.folder, weights=whole)


def _steps(config: SftConfig, num_steps: int) -> TrainerConfig:
    """The settings of the optimiser; a warm-up may be longer than the run."""
    return TrainerConfig().model_copy(
        update={
            "lr_schedule": "cosine",
            "lr_warmup_steps": config.warmup_steps,
            "lr_total_steps": num_steps,
            "lr_min_ratio": config.min_lr_ratio,
            "betas": config.betas,
            "grad_clip": config.grad_clip,
            "offload_weights": config.offload_weights,
            "optimizer": config.optimizer,
        }
    )


def _batches(rows: Sequence[SupervisedRow], config: SftConfig) -> Iterator[list[SupervisedRow]]:
    random = np.random.default_rng(config.seed)
    for _ in range(config.epochs):
        keys = [(len(row.ids) // BUCKET_TOKENS, draw) for row, draw in zip(rows, random.random(len(rows)), strict=True)]
        order = sorted(range(len(rows)), key=keys.__getitem__)
        starts = np.arange(0, len(order), config.batch_size)
        for start in random.permutation(starts):
            yield [rows[i] for i in order[start : start + config.batch_size]]
