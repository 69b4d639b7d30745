"""Model and optimiser in one process: samples in, stepped weights out, with the figures of the step.

Invariant: the result depends on the samples, the settings and the seed only. Every optimiser step has one
denominator, the number of its target tokens, so micro-batches change nothing but memory; a loss or gradient that is
not finite stops before the weights are touched. Loading what `save` wrote gives the same bits as going on in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from weir.trainer.batching import PaddedBatch, micro_batches, pad
from weir.trainer.config import TrainerConfig
from weir.trainer.errors import NotFinite, VersionError
from weir.trainer.model import STATE_FILE, choose_device, load_model, save_model, target_logprobs
from weir.trainer.policy_losses import POLICY_LOSSES
from weir.trainer.samples import Sample
from weir.trainer.step_stats import StepStats, TokenStats


class Learner:
    """Weights, AdamW and the folder that they came from."""

    def __init__(self, folder: Path, config: TrainerConfig) -> None:
        torch.set_num_threads(config.torch_threads)
        self.config = config
        self.folder = folder
        self.device = choose_device(config.device)
        self.model = load_model(folder, self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
        )
        if (folder / STATE_FILE).exists():
            self._load_state(folder / STATE_FILE)

    def train(
        self,
        samples: Sequence[Sample],
        *,
        fresh_version: int,
        seed: int,
        on_tokens: Callable[[int], None] = lambda _: None,
    ) -> list[StepStats]:
        """Take the round's optimiser steps over the samples; none where there are none. Raises `NotFinite`.

        Tokens of `fresh_version` are those whose recorded logprobs these very weights must reproduce before the first
        step.
        """
        if not samples:
            return []
        order = np.random.default_rng(seed).permutation(len(samples))
        parts = [part for part in np.array_split(order, self.config.optimizer_steps) if len(part)]
        return [self._step([samples[i] for i in sorted(part)], fresh_version, on_tokens) for part in parts]

    def accumulate(
        self, samples: Sequence[Sample], fresh_version: int, on_tokens: Callable[[int], None] = lambda _: None
    ) -> TokenStats:
        """Add the gradient of the mean token loss over all samples to the parameters, micro-batch by micro-batch."""
        denominator = sum(len(sample.output_ids) for sample in samples)
        stats = TokenStats()
        for part in micro_batches(samples, self.config.token_budget):
            batch = pad(part, self.device)
            stats.add(self._backward(part, batch, denominator, fresh_version))
            on_tokens(batch.num_targets)
        return stats

    def save(self, folder: Path) -> None:
        """Write weights, configuration, tokenizer and optimiser state into an existing folder."""
        save_model(self.model, folder, tokenizer_from=self.folder)
        torch.save({"optimizer": self.optimizer.state_dict()}, folder / STATE_FILE)

    def _step(self, samples: Sequence[Sample], fresh_version: int, on_tokens: Callable[[int], None]) -> StepStats:
        self.optimizer.zero_grad(set_to_none=True)
        stats = self.accumulate(samples, fresh_version, on_tokens)
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip))
        if not (math.isfinite(norm) and math.isfinite(stats.loss_sum)):
            raise NotFinite(
                f"the step was not taken: loss {stats.loss_sum}, gradient norm {norm} over {len(samples)} samples; "
                "lower trainer.lr, or go back to an earlier version"
            )
        self.optimizer.step()
        return stats.finished(grad_norm=norm, num_samples=len(samples))

    def _backward(
        self, samples: Sequence[Sample], batch: PaddedBatch, denominator: int, fresh_version: int
    ) -> TokenStats:
        temperatures = torch.tensor([sample.temperature for sample in samples], device=self.device)  # (B,)
        old_logprobs = self._flat([sample.old_logprobs for sample in samples])  # (N,)
        advantages = self._flat(
            [np.full(len(sample.output_ids), sample.advantage, dtype=np.float32) for sample in samples]
        )  # (N,)
        told = target_logprobs(self.model, batch, temperatures, with_entropy=True)
        losses = POLICY_LOSSES[self.config.policy_loss](told.logprobs, old_logprobs, advantages, self.config)
        (losses.loss.sum() / denominator).backward()  # type: ignore[no-untyped-call]
        fresh = torch.from_numpy(np.concatenate([sample.versions for sample in samples]) == fresh_version)
        return TokenStats.of(told, losses, old_logprobs, fresh.to(self.device))

    def _flat(self, arrays: Sequence[np.ndarray[tuple[int], np.dtype[np.float32]]]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(arrays).astype(np.float32, copy=False)).to(self.device)

    def _load_state(self, file: Path) -> None:
        try:
            state = torch.load(file, map_location=self.device, weights_only=True)
            self.optimizer.load_state_dict(state["optimizer"])
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise VersionError(f"cannot load the optimiser's state from {file}: {error}") from error
        for group in self.optimizer.param_groups:  # the settings decide, the file holds the moments
            group.update(lr=self.config.lr, betas=self.config.betas, weight_decay=self.config.weight_decay)
