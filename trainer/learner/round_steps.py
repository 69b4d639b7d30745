"""A round's optimiser steps, however its passes are computed: what is known before the first step, and the loss.

Invariant: one `objective`. A backend computes the logprobs and entropies of a micro-batch's targets, in the order of
its samples, and differentiates the sum that `_loss_of` returns; the weight of each token in it is known before the
first pass, so that sums over micro-batches and ranks need no further division.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from weir.store.records.call_record import Logprobs
from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.errors import NotFinite
from weir.trainer.learner.adaptive_kl import steered
from weir.trainer.learner.off_policy import OffPolicyScores
from weir.trainer.learner.scoring import Scores
from weir.trainer.learner.step_stats import StepStats, TokenStats
from weir.trainer.learner.token_traces import traces_of
from weir.trainer.losses.gae import TokenCredit, token_credit
from weir.trainer.losses.kl import DIVERGENCES
from weir.trainer.losses.normalization import LOSS_MEANS
from weir.trainer.losses.objective import SampledTokens, objective
from weir.trainer.losses.sequences import Sequences
from weir.trainer.model.routing_replay import RoutedShape
from weir.trainer.model.token_model import TargetLogprobs
from weir.trainer.settings.config import TrainerConfig


class TakesSteps(Protocol):
    """An optimiser over the accumulated gradient of one module."""

    def clear(self) -> None: ...

    def clip(self) -> float:
        """Clip the gradient; returns its L2 norm before clipping, over all ranks."""
        ...

    def step(self) -> None: ...


class RoundSteps(ABC):
    """Takes the steps of a round; its abstract methods are how a backend computes."""

    def __init__(self, config: TrainerConfig, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.kl_coef = config.kl_coef  # steered by kl_target
        self.routed: RoutedShape | None = None  # of the model, with routing_replay
        self._keeps_tokens = False  # of the step that is being taken
        self._old_logprobs: Scores | None = None
        self._reference_logprobs: Scores | None = None
        self._values: Scores | None = None
        self._off_policy: OffPolicyScores | None = None
        self._credit: dict[str, TokenCredit] = {}

    @property
    @abstractmethod
    def num_steps(self) -> int:
        """Optimiser steps taken over all rounds."""

    @property
    @abstractmethod
    def _steppers(self) -> Sequence[TakesSteps]:
        """The policy's, and the critic's where there is one."""

    @abstractmethod
    def accumulate(
        self, samples: Sequence[Sample], fresh_version: int, on_tokens: Callable[[int], None] = lambda _: None
    ) -> TokenStats:
        """Add the gradient of a step's policy loss to the parameters, micro-batch by micro-batch.

        The samples have been scored by `score`. Returns the statistics over all ranks.
        """

    @abstractmethod
    def accumulate_mixed(self, rows: Sequence[SupervisedRow]) -> float | None:
        """Add the gradient of the supervised loss to the parameters; returns the loss, None without rows."""

    @abstractmethod
    def accumulate_critic(self, samples: Sequence[Sample]) -> float | None:
        """Add the gradient of the critic's loss to its parameters; returns the loss, None without a critic."""

    @abstractmethod
    def _score_off_policy(self, samples: Sequence[Sample]) -> OffPolicyScores | None: ...

    @abstractmethod
    def _score_by_policy(self, samples: Sequence[Sample]) -> Scores: ...

    @abstractmethod
    def _score_by_reference(self, samples: Sequence[Sample]) -> Scores: ...

    @abstractmethod
    def _score_by_critic(self, samples: Sequence[Sample]) -> Scores | None: ...

    @abstractmethod
    def _weights_are_finite(self) -> bool:
        """Whether every weight is a finite number, on all ranks."""

    @property
    def _steered_config(self) -> TrainerConfig:
        """The settings with the steered coefficient of the KL divergence."""
        if self.config.kl_target is None:
            return self.config
        return self.config.model_copy(update={"kl_coef": self.kl_coef})

    def train(
        self,
        samples: Sequence[Sample],
        *,
        fresh_version: int,
        seed: int,
        supervised: Sequence[Sequence[SupervisedRow]] = (),
        on_tokens: Callable[[int], None] = lambda _: None,
    ) -> list[StepStats]:
        """Take the round's optimiser steps, as `Backend.train`. Raises `NotFinite`.

        `on_tokens` gets the number of target tokens of each micro-batch after its backward pass.
        """
        if not samples:
            return []
        torch.set_num_threads(self.config.torch_threads)  # the setting is per thread
        torch.manual_seed(seed)  # for models with dropout
        if self.routed is not None:
            self.routed.check(samples)
        self.score(samples)
        parts = list(self._parts(len(samples), seed))
        mixed = list(supervised)[: len(parts)] or [()] * len(parts)
        stats: list[StepStats] = []
        for (epoch, part), rows in zip(parts, mixed, strict=True):
            stats.append(self._step([samples[i] for i in sorted(part)], rows, fresh_version, on_tokens, epoch))
            if stats[-1].stopped_by is not None:
                break
        self._check_weights()
        self.kl_coef = steered(self.kl_coef, stats, self.config)
        return stats

    def _parts(self, num_samples: int, seed: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Epoch, from 1, and the samples of each step of the round."""
        random = np.random.default_rng(seed)
        for epoch in range(1, self.config.epochs + 1):
            order = random.permutation(num_samples)
            yield from ((epoch, part) for part in np.array_split(order, min(self.config.optimizer_steps, num_samples)))

    def score(self, samples: Sequence[Sample]) -> None:
        """Compute what is needed before the first step: old and reference logprobs, values, credit, behaviours."""
        config = self.config
        self._off_policy = self._score_off_policy(samples)
        if config.old_logprobs == "recomputed":
            self._old_logprobs = self._score_by_policy(samples)
        if config.kl != "none":
            self._reference_logprobs = self._score_by_reference(samples)
        self._values = self._score_by_critic(samples)
        penalties = self._penalties(samples) if config.kl_in == "reward" else None
        self._credit = token_credit(samples, config, values=self._values, penalties=penalties)

    def _weights(self, samples: Sequence[Sample], mean: str) -> dict[str, float]:
        """The weight of each token of a sample in the step's loss, by call id."""
        lengths = [len(sample.output_ids) for sample in samples]
        groups = [sample.group_id for sample in samples]
        weights = LOSS_MEANS[mean](lengths, groups, float(self.config.loss_constant or 1))
        return {sample.call_id: weight for sample, weight in zip(samples, weights, strict=True)}

    def _penalties(self, samples: Sequence[Sample]) -> Scores:
        """kl_coef times the KL estimate of each token, to subtract from its reward (kl_in = reward)."""
        assert self._reference_logprobs is not None
        known = self._old_logprobs or {sample.call_id: sample.old_logprobs for sample in samples}
        penalties: Scores = {}
        for call_id, logprobs in known.items():
            reference = torch.from_numpy(self._reference_logprobs[call_id])
            divergence = DIVERGENCES[self.config.kl](torch.from_numpy(logprobs), reference)
            penalties[call_id] = (self.kl_coef * divergence).numpy()
        return penalties

    def _step(
        self,
        samples: Sequence[Sample],
        rows: Sequence[SupervisedRow],
        fresh_version: int,
        on_tokens: Callable[[int], None],
        epoch: int,
    ) -> StepStats:
        """Take one step, unless the limits of later epochs refuse it; `stopped_by` says so."""
        steppers = self._steppers
        for stepper in steppers:
            stepper.clear()
        self._keeps_tokens = self.config.keep_tokens == "tokens" and epoch == 1
        stats = self.accumulate(samples, fresh_version, on_tokens)
        sft_loss = self.accumulate_mixed(rows)
        value_loss = self.accumulate_critic(samples)
        norm, *of_critic = [stepper.clip() for stepper in steppers]
        figures = {"loss": stats.loss, "gradient norm": norm, "value loss": value_loss, "sft loss": sft_loss}
        if not all(math.isfinite(figure or 0.0) for figure in (*figures.values(), *of_critic)):
            raise NotFinite(
                "the step was not taken: "
                + ", ".join(f"{name} {figure}" for name, figure in figures.items() if figure is not None)
                + f" over {len(samples)} samples; lower trainer.lr, or go back to an earlier version"
            )
        finished = replace(
            stats.finished(grad_norm=norm, num_samples=len(samples), value_loss=value_loss, sft_loss=sft_loss),
            epoch=epoch,
            kl_coef=None if self.config.kl_target is None else self.kl_coef,
        )
        if epoch > 1 and (limit := _exceeded(finished, self.config)) is not None:
            return replace(finished, stopped_by=limit)
        for stepper in steppers:
            stepper.step()
        return finished

    def _loss_of(
        self,
        samples: Sequence[Sample],
        predicted: TargetLogprobs,
        weights: Sequence[float],
        fresh_version: int,
        *,
        computed_tokens: int,
    ) -> tuple[torch.Tensor, Callable[[], TokenStats]]:
        """The loss of a micro-batch, to differentiate, and what reads its statistics.

        `predicted` holds the samples' N targets, `weights` the weight of each sample's tokens in the step. Statistics
        are numbers, for which a device must have computed all that it was asked for: read them once the backward pass
        was, too.
        """
        lengths = [len(sample.output_ids) for sample in samples]
        versions = torch.from_numpy(np.concatenate([sample.versions for sample in samples]))
        tokens = SampledTokens(
            logprobs=predicted.logprobs,
            entropy=predicted.entropy if self.config.entropy_coef > 0 else predicted.entropy.detach(),
            recorded=self._flat([self._behaviour(sample) for sample in samples]),
            recomputed=self._recomputed(samples),
            reference=self._scored(self._reference_logprobs, samples),
            advantages=self._flat([self._credit[sample.call_id].advantages for sample in samples]),
            staleness=fresh_version - versions.long().to(self.device, non_blocking=True),
            sequences=Sequences.of(lengths, self.device),
            off_policy=self._off_policy_targets(samples, lengths),
        )
        objectives = objective(tokens, self._steered_config)
        weighted = objectives.losses.loss * self._repeated(weights, lengths)
        is_fresh = (tokens.staleness == 0) & self._is_published
        keeps_tokens = self._keeps_tokens

        def read() -> TokenStats:
            stats = TokenStats.of(
                tokens,
                objectives,
                weighted.detach(),
                is_fresh=is_fresh,
                sample_tokens=sum(len(sample.prompt_ids) + n for sample, n in zip(samples, lengths, strict=True)),
                computed_tokens=computed_tokens,
                outside=sum(self._off_policy.outside.get(sample.call_id, 0) for sample in samples)
                if self._off_policy is not None
                else 0,
                bounds=(self.config.off_policy.low, self.config.off_policy.high),
            )
            if keeps_tokens:
                stats.traces = traces_of(samples, tokens, objectives)
            return stats

        return weighted.sum(), read

    @property
    def _is_published(self) -> bool:
        """Whether engines serve the stepped weights, and not their average."""
        return self.config.published_weights == "stepped" or self.num_steps == 0

    def _check_weights(self) -> None:
        if not self._weights_are_finite():
            raise NotFinite(
                f"after step {self.num_steps} not every weight is a finite number, and nothing was written; lower "
                f"trainer.lr = {self.config.peak_lr:g}"
            )

    def _behaviour(self, sample: Sample) -> Logprobs:
        """The logprobs of the distribution that drew a sample's tokens, (N,)."""
        if self._off_policy is None:
            return sample.old_logprobs
        return self._off_policy.behaviour.get(sample.call_id, sample.old_logprobs)

    def _recomputed(self, samples: Sequence[Sample]) -> torch.Tensor | None:
        """Logprobs under the round's first weights: of all targets, of off-policy ones (the others 0), or None."""
        if self._old_logprobs is not None or self._off_policy is None:
            return self._scored(self._old_logprobs, samples)
        known = self._off_policy.policy
        return self._flat([known.get(sample.call_id, np.zeros_like(sample.old_logprobs)) for sample in samples])

    def _off_policy_targets(self, samples: Sequence[Sample], lengths: Sequence[int]) -> torch.Tensor | None:
        """Which targets were drawn from another distribution, (N,); None where the round has none."""
        if self._off_policy is None:
            return None
        return self._repeated([float(sample.behaviour.is_off_policy) for sample in samples], lengths).bool()

    def _scored(self, scores: Scores | None, samples: Sequence[Sample]) -> torch.Tensor | None:
        return None if scores is None else self._flat([scores[sample.call_id] for sample in samples])

    def _repeated(self, values: Sequence[float], lengths: Sequence[int]) -> torch.Tensor:
        """Each sample's value at each of its targets, shape (N,)."""
        return self._flat([np.full(n, value, dtype=np.float32) for value, n in zip(values, lengths, strict=True)])

    def _flat(self, arrays: Sequence[np.ndarray[tuple[int], np.dtype[Any]]]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(arrays).astype(np.float32, copy=False)).to(
            self.device, non_blocking=True
        )


def _exceeded(step: StepStats, config: TrainerConfig) -> str | None:
    """The limit of later epochs that a step exceeds."""
    if config.max_epoch_kl is not None and step.kl_k3 > config.max_epoch_kl:
        return "max_epoch_kl"
    clipped = step.clip_low + step.clip_high
    return "max_epoch_clip" if config.max_epoch_clip is not None and clipped > config.max_epoch_clip else None
