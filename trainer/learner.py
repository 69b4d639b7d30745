"""Model and optimiser in one process: samples in, stepped weights out, with the figures of the step.

Invariant: the result depends on the samples, the settings and the seed only. Every optimiser step has one
weight for each of its tokens, known before its first batch, so micro-batches change nothing but memory; a loss or
gradient that is not finite stops before the weights are touched. Loading what `save` wrote gives the same bits as going
on in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from weir.trainer.batching import lay_out, micro_batches
from weir.trainer.config import TrainerConfig
from weir.trainer.errors import NotFinite, VersionError
from weir.trainer.loss_means import LOSS_MEANS
from weir.trainer.model import STATE_FILE, choose_device, load_model, save_model
from weir.trainer.objective import SampledTokens, objective
from weir.trainer.samples import Sample
from weir.trainer.scoring import Scores, score, score_by
from weir.trainer.sequences import Sequences
from weir.trainer.step_stats import StepStats, TokenStats


class Learner:
    """Weights, AdamW and the folder that they came from. `reference` is the folder of the model that they stay near."""

    def __init__(self, folder: Path, config: TrainerConfig, *, reference: Path | None = None) -> None:
        torch.set_num_threads(config.torch_threads)
        self.config = config
        self.folder = folder
        self.reference = reference or folder
        self._recomputed: Scores | None = None
        self._referred: Scores | None = None
        self.device = choose_device(config.device)
        self.model = load_model(folder, self.device)
        self.layout = self.model.layout(share_prefixes=config.share_prefixes)
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
        self.score(samples)
        order = np.random.default_rng(seed).permutation(len(samples))
        parts = [part for part in np.array_split(order, self.config.optimizer_steps) if len(part)]
        return [self._step([samples[i] for i in sorted(part)], fresh_version, on_tokens) for part in parts]

    def score(self, samples: Sequence[Sample]) -> None:
        """Find out what the settings need to know of the samples before the first step."""
        config = self.config
        if config.old_logprobs == "recomputed":
            self._recomputed = score(self.model, samples, config, self.device)
        if config.kl != "none":
            self._referred = score_by(self.reference, samples, config, self.device)

    def accumulate(
        self, samples: Sequence[Sample], fresh_version: int, on_tokens: Callable[[int], None] = lambda _: None
    ) -> TokenStats:
        """Add the gradient of a step's loss over all its samples to the parameters, micro-batch by micro-batch."""
        weigh = LOSS_MEANS[self.config.loss_mean]
        lengths = [len(sample.output_ids) for sample in samples]
        weights = weigh(lengths, [sample.group_id for sample in samples], float(self.config.loss_constant or 1))
        weight_of = {sample.call_id: weight for sample, weight in zip(samples, weights, strict=True)}
        stats = TokenStats()
        for part in micro_batches(samples, self.config.token_budget, self.layout):
            stats.add(self._backward(part, [weight_of[sample.call_id] for sample in part], fresh_version))
            on_tokens(sum(len(sample.output_ids) for sample in part))
        return stats

    def save(self, folder: Path) -> None:
        """Write weights, configuration, tokenizer and optimiser state into an existing folder."""
        save_model(self.model, folder, tokenizer_from=self.folder)
        torch.save({"optimizer": self.optimizer.state_dict()}, folder / STATE_FILE)

    def _step(self, samples: Sequence[Sample], fresh_version: int, on_tokens: Callable[[int], None]) -> StepStats:
        self.optimizer.zero_grad(set_to_none=True)
        stats = self.accumulate(samples, fresh_version, on_tokens)
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip))
        if not (math.isfinite(norm) and math.isfinite(stats.loss)):
            raise NotFinite(
                f"the step was not taken: loss {stats.loss}, gradient norm {norm} over {len(samples)} samples; "
                "lower trainer.lr, or go back to an earlier version"
            )
        self.optimizer.step()
        return stats.finished(grad_norm=norm, num_samples=len(samples))

    def _backward(self, samples: Sequence[Sample], weights: Sequence[float], fresh_version: int) -> TokenStats:
        batch, lengths = lay_out(samples, self.layout, self.device), [len(sample.output_ids) for sample in samples]
        told = self.model(batch, self._repeated([sample.temperature for sample in samples], lengths))
        versions = torch.from_numpy(np.concatenate([sample.versions for sample in samples])).to(self.device)
        tokens = SampledTokens(
            logprobs=told.logprobs,
            entropy=told.entropy if self.config.entropy_coef > 0 else told.entropy.detach(),
            recorded=self._flat([sample.old_logprobs for sample in samples]),
            recomputed=self._scored(self._recomputed, samples),
            reference=self._scored(self._referred, samples),
            advantages=self._repeated([sample.advantage for sample in samples], lengths),
            staleness=fresh_version - versions.long(),
            sequences=Sequences.of(lengths, self.device),
        )
        found = objective(tokens, self.config)
        weighted = found.losses.loss * self._repeated(weights, lengths)
        weighted.sum().backward()  # type: ignore[no-untyped-call]
        return TokenStats.of(
            tokens,
            found,
            weighted.detach(),
            sample_tokens=sum(len(sample.prompt_ids) + n for sample, n in zip(samples, lengths, strict=True)),
            computed_tokens=batch.num_tokens,
        )

    def _scored(self, scores: Scores | None, samples: Sequence[Sample]) -> torch.Tensor | None:
        return None if scores is None else self._flat([scores[sample.call_id] for sample in samples])

    def _repeated(self, values: Sequence[float], lengths: Sequence[int]) -> torch.Tensor:
        """Each sample's value at each of its targets, shape (N,)."""
        return self._flat([np.full(n, value, dtype=np.float32) for value, n in zip(values, lengths, strict=True)])

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
