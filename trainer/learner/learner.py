"""The torch backend: takes a round's optimiser steps over its samples, in one process or as one of several ranks.

Invariant: the result depends only on the folder, the samples, the settings and the seed. The weight of each token in a
step's loss is known before the first batch, so micro-batches and ranks change only memory and time. A loss or gradient
that is not finite stops all ranks before the step, weights that are not finite stop them before saving. Loading the
files of `save` yields the same bits as staying in memory.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from weir.store.records.call_record import Logprobs
from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.errors import NotFinite, VersionError
from weir.trainer.learner.adaptive_kl import steered
from weir.trainer.learner.critic import Critic
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.loading import load_trained, lora_shape
from weir.trainer.learner.off_policy import OffPolicyScores, score_off_policy
from weir.trainer.learner.optimizer import Stepper
from weir.trainer.learner.rank_files import read_state, state_tensors, write_state, write_weights
from weir.trainer.learner.saved_state import CRITIC, KL_COEF, NUM_STEPS, POLICY, saved_state
from weir.trainer.learner.scoring import Scores, score, score_by
from weir.trainer.learner.step_stats import StepStats, TokenStats
from weir.trainer.learner.supervised_loss import accumulate_supervised
from weir.trainer.learner.token_traces import traces_of
from weir.trainer.losses.gae import TokenCredit, token_credit
from weir.trainer.losses.kl import DIVERGENCES
from weir.trainer.losses.normalization import LOSS_MEANS
from weir.trainer.losses.objective import SampledTokens, objective
from weir.trainer.losses.sequences import Sequences
from weir.trainer.model.batching import lay_out, micro_batches
from weir.trainer.model.lora import adapters_off, merged, save_adapters
from weir.trainer.model.stored_tensors import BytesRead
from weir.trainer.model.token_model import choose_device, is_finite, save_model, save_state
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import STATE_FILE, FileEntry, num_parameters


class Learner:
    """The policy, its AdamW and, for GAE, a critic.

    `reference` is the folder of the model for the KL divergence, `state` that of the optimiser's state where it lies
    in another folder than the weights.
    """

    def __init__(
        self,
        folder: Path,
        config: TrainerConfig,
        *,
        reference: Path | None = None,
        ranks: Ranks = Ranks(),
        state: Path | None = None,
    ) -> None:
        config = config.with_defaults(lambda: num_parameters(folder))
        torch.set_num_threads(config.torch_threads)
        self.config = config
        self.ranks = ranks
        self.folder = folder
        self.reference = reference or folder
        self.kl_coef = config.kl_coef  # steered by kl_target
        self._saves_without_state = 0
        self._keeps_tokens = False  # of the step that is being taken
        self._old_logprobs: Scores | None = None
        self._reference_logprobs: Scores | None = None
        self._values: Scores | None = None
        self._off_policy: OffPolicyScores | None = None
        self._credit: dict[str, TokenCredit] = {}
        self.device = choose_device(config.device)
        self.lora = lora_shape(config)
        self.read = BytesRead()  # of the folder, and with LoRA of its base
        self.model = load_trained(folder, self.reference, config, self.device, ranks, self.read)
        self.layout = self.model.layout(share_prefixes=config.share_prefixes)
        self.critic = None
        if config.advantage == "gae":
            self.critic = Critic(folder, config, self.model, self.device, ranks, self.read)
        self.stepper = Stepper(self.model, config, lr=config.peak_lr, weight_decay=config.weight_decay, ema=config.ema)
        self._load_state(state or folder)

    @property
    def _steered_config(self) -> TrainerConfig:
        """The settings with the steered coefficient of the KL divergence."""
        if self.config.kl_target is None:
            return self.config
        return self.config.model_copy(update={"kl_coef": self.kl_coef})

    @property
    def num_parameters(self) -> int:
        """Number of weights of the policy."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken over all rounds."""
        return self.stepper.num_steps

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
        self._off_policy = score_off_policy(self.model, samples, config, self.device, self.ranks)
        if config.old_logprobs == "recomputed":
            self._old_logprobs = score(self.model, samples, config, self.device, self.ranks)
        if config.kl != "none":
            self._reference_logprobs = self._score_by_reference(samples)
        if self.critic is not None:
            self._values = self.critic.values(samples)
        penalties = self._penalties(samples) if config.kl_in == "reward" else None
        self._credit = token_credit(samples, config, values=self._values, penalties=penalties)

    def _score_by_reference(self, samples: Sequence[Sample]) -> Scores:
        if self.lora is None:
            return score_by(self.reference, samples, self.config, self.device, self.ranks)
        with adapters_off(self.model):
            return score(self.model, samples, self.config, self.device, self.ranks)

    def accumulate(
        self, samples: Sequence[Sample], fresh_version: int, on_tokens: Callable[[int], None] = lambda _: None
    ) -> TokenStats:
        """Add the gradient of a step's policy loss to the parameters, micro-batch by micro-batch.

        The samples have been scored by `score`. Returns the statistics over all ranks.
        """
        weight_of = self._weights(samples, self.config.loss_mean)
        own = TokenStats()
        for part, counts in self.ranks.share(micro_batches(samples, self.config.token_budget, self.layout)):
            weights = [weight_of[sample.call_id] if counts else 0.0 for sample in part]
            part_stats = self._backward(part, weights, fresh_version)
            if counts:
                own.add(part_stats)
            on_tokens(sum(len(sample.output_ids) for sample in part))
        stats = TokenStats()
        for rank_stats in self.ranks.gather(own):
            stats.add(rank_stats)
        return stats

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

    @property
    def _is_published(self) -> bool:
        """Whether engines serve the stepped weights, and not their average."""
        return self.config.published_weights == "stepped" or self.num_steps == 0

    def save(self, folder: Path, *, state: Path | None = None) -> dict[str, FileEntry]:
        """Write weights, configuration, tokenizer and optimiser states into an existing folder; all ranks call it.

        Ranks write the states into the folder `state`, where it is named. One process writes the optimiser's with only
        each `keep_state_every`th save since the last state.
        Returns the entries of files that are already synced. Raises OSError.
        """
        if self.ranks.count > 1:
            return self._save_on_ranks(folder, state or folder)
        weights, own = self.stepper.weights(), self.stepper.state()
        if self.config.kl_target is not None:
            own["kl_coef"] = self.kl_coef
        averaged = self.config.published_weights == "averaged"
        if self.lora is None and (averaged or self.model.compute is not torch.float32):
            own["weights"] = weights  # the stepped ones, which the model files do not hold
        published = self.stepper.averaged_weights() if averaged else weights
        written: dict[str, FileEntry] = {}
        if self.lora is not None:
            save_adapters(weights, self.lora, folder)
            published = merged(published, self.lora)
        with ThreadPoolExecutor(max_workers=1) as writer:
            writing = writer.submit(save_state, own, folder / STATE_FILE) if self._keeps_state else None
            save_model(self.model, folder, tokenizer_from=self.folder, weights=published)
            if writing is not None:
                written[STATE_FILE] = writing.result()
        if self.critic is not None:
            written |= self.critic.save(folder)
        self._saves_without_state = 0 if self._keeps_state else self._saves_without_state + 1
        return written

    def _save_on_ranks(self, folder: Path, state: Path) -> dict[str, FileEntry]:
        """As `save`; every rank writes its own rows."""
        averaged = self.config.published_weights == "averaged"
        write_weights(
            self.model,
            self.stepper,
            folder,
            like_folder=self.folder,
            ranks=self.ranks,
            averaged=averaged,
            lora=self.lora,
        )
        stepped = self.lora is None and (averaged or self.model.compute is not torch.float32)
        tensors = state_tensors(self.stepper, POLICY, weights=stepped)
        if self.config.kl_target is not None:
            tensors[f"{POLICY}/{KL_COEF}"] = torch.tensor(self.kl_coef, dtype=torch.float64)
        if self.critic is not None:
            tensors |= state_tensors(self.critic.stepper, CRITIC, weights=True)
        write_state(tensors, state)
        return {}

    @property
    def _keeps_state(self) -> bool:
        """Whether the next save writes the optimiser's state."""
        return self._saves_without_state + 1 >= self.config.keep_state_every

    def _step(
        self,
        samples: Sequence[Sample],
        rows: Sequence[SupervisedRow],
        fresh_version: int,
        on_tokens: Callable[[int], None],
        epoch: int,
    ) -> StepStats:
        """Take one step, unless the limits of later epochs refuse it; `stopped_by` says so."""
        steppers = [self.stepper, *([self.critic.stepper] if self.critic is not None else [])]
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

    def _check_weights(self) -> None:
        modules = [self.model, *([self.critic.model] if self.critic is not None else [])]
        if not all(self.ranks.gather(all(map(is_finite, modules)))):
            raise NotFinite(
                f"after step {self.num_steps} not every weight is a finite number, and nothing was written; lower "
                f"trainer.lr = {self.config.peak_lr:g}"
            )

    def accumulate_mixed(self, rows: Sequence[SupervisedRow]) -> float | None:
        """Add the gradient of the supervised loss to the parameters; returns the loss, None without rows."""
        if not rows:
            return None
        return accumulate_supervised(
            self.model,
            rows,
            token_budget=self.config.token_budget,
            layout=self.layout,
            device=self.device,
            coef=self.config.sft_coef,
            ranks=self.ranks,
        )

    def accumulate_critic(self, samples: Sequence[Sample]) -> float | None:
        """Add the gradient of the critic's loss to its parameters; returns the loss, None without a critic."""
        if self.critic is None:
            return None
        assert self._values is not None
        return self.critic.accumulate(samples, self._weights(samples, "token"), self._credit, self._values)

    def _backward(self, samples: Sequence[Sample], weights: Sequence[float], fresh_version: int) -> TokenStats:
        batch, lengths = lay_out(samples, self.layout, self.device), [len(sample.output_ids) for sample in samples]
        predicted = self.model(batch, self._repeated([sample.temperature for sample in samples], lengths))
        versions = torch.from_numpy(np.concatenate([sample.versions for sample in samples])).to(self.device)
        tokens = SampledTokens(
            logprobs=predicted.logprobs,
            entropy=predicted.entropy if self.config.entropy_coef > 0 else predicted.entropy.detach(),
            recorded=self._flat([self._behaviour(sample) for sample in samples]),
            recomputed=self._recomputed(samples),
            reference=self._scored(self._reference_logprobs, samples),
            advantages=self._flat([self._credit[sample.call_id].advantages for sample in samples]),
            staleness=fresh_version - versions.long(),
            sequences=Sequences.of(lengths, self.device),
            off_policy=self._off_policy_targets(samples, lengths),
        )
        objectives = objective(tokens, self._steered_config)
        weighted = objectives.losses.loss * self._repeated(weights, lengths)
        weighted.sum().backward()  # type: ignore[no-untyped-call]
        stats = TokenStats.of(
            tokens,
            objectives,
            weighted.detach(),
            is_fresh=(tokens.staleness == 0) & self._is_published,
            sample_tokens=sum(len(sample.prompt_ids) + n for sample, n in zip(samples, lengths, strict=True)),
            computed_tokens=batch.num_tokens,
            outside=sum(self._off_policy.outside.get(sample.call_id, 0) for sample in samples)
            if self._off_policy is not None
            else 0,
            bounds=(self.config.off_policy.low, self.config.off_policy.high),
        )
        if self._keeps_tokens:
            stats.traces = traces_of(samples, tokens, objectives)
        return stats

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
        return torch.from_numpy(np.concatenate(arrays).astype(np.float32, copy=False)).to(self.device)

    def _load_state(self, folder: Path) -> None:
        """Load the folder's state, if it has any, whichever number of processes wrote it."""
        if self.ranks.count == 1 and (folder / STATE_FILE).exists():
            self._load_own_state(folder / STATE_FILE)
            return
        saved = saved_state(folder, self.read)
        if saved is None:
            return
        try:
            read_state(self.stepper, POLICY, saved)
            if self.critic is not None and f"{CRITIC}/{NUM_STEPS}" in saved:
                read_state(self.critic.stepper, CRITIC, saved)
            if self.config.kl_target is not None and f"{POLICY}/{KL_COEF}" in saved:
                self.kl_coef = float(saved.rows(f"{POLICY}/{KL_COEF}", 0, 1))
        except (OSError, RuntimeError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise VersionError(f"cannot load the optimiser's state from {folder}: {error}") from error

    def _load_own_state(self, file: Path) -> None:
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            if "weights" in state:
                self.stepper.load_weights(state["weights"])
            self.stepper.load(state)
            if self.config.kl_target is not None:
                self.kl_coef = state.get("kl_coef", self.kl_coef)
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise VersionError(f"cannot load the optimiser's state from {file}: {error}") from error


def _exceeded(step: StepStats, config: TrainerConfig) -> str | None:
    """The limit of later epochs that a step exceeds."""
    if config.max_epoch_kl is not None and step.kl_k3 > config.max_epoch_kl:
        return "max_epoch_kl"
    clipped = step.clip_low + step.clip_high
    return "max_epoch_clip" if config.max_epoch_clip is not None and clipped > config.max_epoch_clip else None
