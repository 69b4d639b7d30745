"""One process of a model that Megatron-core divides: a round's steps over the stages and parts of a model.

Invariant: the steps are those of `learner/round_steps.py`, whose losses get the same logprobs as in the torch backend;
of the processes of one copy of the model all compute a micro-batch, and those of its last stage its loss.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from transformers import AutoConfig

from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.errors import VersionError
from weir.trainer.learner.off_policy import OffPolicyScores, off_policy_scores, truncation_rows
from weir.trainer.learner.round_steps import RoundSteps
from weir.trainer.learner.saved_state import AVERAGE, CRITIC, KL_COEF, POLICY, saved_state
from weir.trainer.learner.scoring import Scores
from weir.trainer.learner.step_stats import TokenStats
from weir.trainer.megatron.architecture import check_layout, check_reference, read_architecture
from weir.trainer.megatron.balanced import watch_routers
from weir.trainer.megatron.critic import MegatronCritic
from weir.trainer.megatron.groups import ModelRanks
from weir.trainer.megatron.packed_model import empty_model
from weir.trainer.megatron.passes import Passes, RowOutput
from weir.trainer.megatron.replayed import replay_routers
from weir.trainer.megatron.state_files import Trained, load
from weir.trainer.megatron.state_files import write as write_state
from weir.trainer.megatron.stepper import MegatronStepper
from weir.trainer.megatron.weight_map import Place
from weir.trainer.megatron.weights import Rows, check_shapes, fill, published
from weir.trainer.megatron.weights import write as write_weights
from weir.trainer.model.batching import Layout, micro_batches
from weir.trainer.model.ops.kept_mass import kept_mass_of
from weir.trainer.model.routing_replay import RoutedShape
from weir.trainer.model.shared_files import Published
from weir.trainer.model.stored_tensors import BytesRead, StoredTensors
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.megatron import MegatronSettings
from weir.trainer.versions.version_folder import copy_tokenizer, num_parameters


class MegatronLearner(RoundSteps):
    """One process's part of the policy and its optimiser; `ranks` are the copies of the model."""

    def __init__(
        self,
        folder: Path,
        config: TrainerConfig,
        device: torch.device,
        ranks: ModelRanks,
        layout: MegatronSettings,
        *,
        reference: Path,
    ) -> None:
        config = config.with_defaults(lambda: num_parameters(folder))
        torch.set_num_threads(config.torch_threads)
        super().__init__(config, device)
        self.folder = folder
        self.reference = reference
        self.ranks = ranks
        self.read = BytesRead()
        self.architecture = read_architecture(folder)
        check_layout(self.architecture, layout, folder)
        check_reference(self.architecture, reference)
        self.place = Place.here(self.architecture, layout)
        self.network = empty_model(
            self.architecture,
            layout,
            precision=config.precision,
            recompute=config.gradient_checkpointing,
            replay=config.routing_replay,
        )
        if config.routing_replay:
            self.routed = RoutedShape.of(AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config())
            replay_routers(self.network, self.routed)
        self.network.to(device)
        self.balance = watch_routers(self.network, self.architecture)
        stored = self._fill(folder)
        self.stepper = MegatronStepper(self.network, config, layout)
        self.passes = Passes(self.network, self.stepper.wrapped, self.architecture, layout, device)
        self._saves_without_state = 0
        self.critic: MegatronCritic | None = None
        self._load_state(None if config.precision == "float32" else stored.rows, layout)

    def _fill(self, folder: Path) -> StoredTensors:
        """Give the parameters the weights of a folder's files."""
        stored = StoredTensors(folder, self.read)
        check_shapes(self.architecture, stored)
        fill(self.network, self.architecture, self.place, stored.rows)
        return stored

    def _load_state(self, stored: Rows | None, layout: MegatronSettings) -> None:
        """Load the folder's state, if it has any, whichever backend wrote it; `stored` has weights before rounding."""
        saved = saved_state(self.folder, self.read)
        try:
            load(self._trained, saved, stored)
            if self.config.advantage == "gae":
                first = Path(self.config.critic_path or self.folder)
                self.critic = MegatronCritic(first, self.config, self.device, layout, self.read, saved)
            if saved is not None and self.config.kl_target is not None and f"{POLICY}/{KL_COEF}" in saved:
                self.kl_coef = float(saved.rows(f"{POLICY}/{KL_COEF}", 0, 1))
        except (OSError, RuntimeError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise VersionError(f"cannot load the optimiser's state from {self.folder}: {error}") from error

    def save(self, folder: Path) -> None:
        """Write weights, configuration, tokenizer and optimiser state into an existing folder; all ranks call it.

        The state is written with only each `keep_state_every`th save since the last one. Raises OSError.
        """
        averaged = self.config.published_weights == "averaged"
        write_weights(self.published(), folder)
        if dist.get_rank() == 0:
            save_config(self.folder, folder, self.config.precision)
        keeps = self._saves_without_state + 1 >= self.config.keep_state_every
        if keeps:
            write_state(
                [self._trained, *([self.critic.trained] if self.critic is not None else [])],
                folder,
                weights={CRITIC} | ({POLICY} if averaged or self.config.precision != "float32" else set()),
                kl_coef=None if self.config.kl_target is None else self.kl_coef,
            )
        self._saves_without_state = 0 if keeps else self._saves_without_state + 1

    def published(self) -> Published:
        """This rank's part of the weights that `save` publishes; all ranks go through all of its rows."""
        averaged = self.config.published_weights == "averaged"
        value = (lambda parameter: self.stepper.whole(AVERAGE, parameter)) if averaged else None
        return published(self.network, self.architecture, self.place, value)

    @property
    def _trained(self) -> Trained:
        return Trained(
            part=POLICY, stepper=self.stepper, network=self.network, model=self.architecture, place=self.place
        )

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken over all rounds."""
        return self.stepper.num_steps

    @property
    def _steppers(self) -> list[MegatronStepper]:
        return [self.stepper, *([self.critic.stepper] if self.critic is not None else [])]

    def accumulate(
        self, samples: Sequence[Sample], fresh_version: int, on_tokens: Callable[[int], None] = lambda _: None
    ) -> TokenStats:
        """As `RoundSteps.accumulate`; gradients are summed over ranks by the stepper."""
        weight_of = self._weights(samples, self.config.loss_mean)

        def loss_of(output: RowOutput[Sample]) -> tuple[torch.Tensor, Callable[[], TokenStats] | None]:
            weights = [weight_of[sample.call_id] if output.counts else 0.0 for sample in output.sequences]
            predicted = self.passes.logprobs(output, self._temperatures(output.sequences))
            loss, read = self._loss_of(
                output.sequences, predicted, weights, fresh_version, computed_tokens=output.row.num_tokens
            )
            on_tokens(sum(len(sample.output_ids) for sample in output.sequences))
            return loss, read if output.counts else None

        parts, routed = self._shared(samples), self.config.routing_replay
        with self._balanced(parts, routed=routed) as balance_loss:
            found = self.passes.run(parts, loss_of, backward=True, routed=routed)
        own = TokenStats()
        for read in found:
            if read is not None:
                own.add(read())
        stats = TokenStats()
        for of_copy in self.ranks.gather(own):
            stats.add(of_copy)
        stats.balance_loss = balance_loss
        return stats

    def accumulate_mixed(self, rows: Sequence[SupervisedRow]) -> float | None:
        """As `RoundSteps.accumulate_mixed`."""
        if not rows:
            return None
        denominator = sum(row.num_targets for row in rows)

        def loss_of(output: RowOutput[SupervisedRow]) -> tuple[torch.Tensor, float]:
            at_one = torch.ones(len(output.row.targets), device=self.device)
            logprobs = self.passes.logprobs(output, at_one).logprobs
            loss = -logprobs.sum() * (output.counts / denominator)
            return self.config.sft_coef * loss, float(loss.detach())

        parts = self._shared(rows)
        with self._balanced(parts, scale=self.config.sft_coef):
            found = self.passes.run(parts, loss_of, backward=True)
        return sum(self.ranks.gather(sum(found)))

    @contextmanager
    def _balanced(
        self, parts: Sequence[tuple[list[Any], bool]], *, scale: float = 1.0, routed: bool = False
    ) -> Iterator[float]:
        """As `learner.balanced.balanced`."""
        if self.balance is None:
            yield 0.0
            return

        def nothing(output: RowOutput[Any]) -> tuple[torch.Tensor, None]:
            return output.hidden.new_zeros(()), None

        def count() -> None:
            self.passes.run(parts, nothing, backward=False, routed=routed)

        with self.balance.added(count, self.ranks.of_all, self.device, scale=scale) as loss:
            yield loss

    def accumulate_critic(self, samples: Sequence[Sample]) -> float | None:
        """As `RoundSteps.accumulate_critic`."""
        if self.critic is None:
            return None
        assert self._values is not None
        weights = self._weights(samples, "token")
        return self.critic.accumulate(self._shared(samples), weights, self._credit, self._values, self.ranks)

    def _shared(self, sequences: Sequence[Any]) -> list[tuple[list[Any], bool]]:
        """This copy's micro-batches, and whether each counts."""
        return self.ranks.share(micro_batches(sequences, self.config.token_budget, Layout.PACKED))

    def _temperatures(self, samples: Sequence[Sample]) -> torch.Tensor:
        return self._repeated([s.temperature for s in samples], [len(s.output_ids) for s in samples])

    def _score_by_policy(self, samples: Sequence[Sample]) -> Scores:
        return self._logprobs(samples, routed=self.config.routing_replay)

    def _logprobs(self, samples: Sequence[Sample], *, routed: bool) -> Scores:
        def logprobs(output: RowOutput[Sample]) -> torch.Tensor:
            return self.passes.logprobs(output, self._temperatures(output.sequences)).logprobs

        return self._scores(samples, logprobs, routed=routed)

    def _score_by_reference(self, samples: Sequence[Sample]) -> Scores:
        with self._weights_of(self.reference):
            return self._logprobs(samples, routed=False)

    def _score_by_critic(self, samples: Sequence[Sample]) -> Scores | None:
        return None if self.critic is None else self._scores(samples, self.critic.values_of, self.critic.passes)

    def _score_off_policy(self, samples: Sequence[Sample]) -> OffPolicyScores | None:
        chosen = [sample for sample in samples if sample.behaviour.is_off_policy]
        if not chosen:
            return None

        def compute(output: RowOutput[Sample]) -> torch.Tensor:
            lengths = [len(sample.output_ids) for sample in output.sequences]
            temperatures = self._temperatures(output.sequences)
            rows = truncation_rows([sample.behaviour for sample in output.sequences], lengths, self.device)
            logprobs = self.passes.logprobs(output, temperatures).logprobs
            logits_of = self.passes.logits(output)
            kept = kept_mass_of(logits_of, output.row.targets, temperatures, rows)
            return torch.cat([logprobs[:, None], kept], dim=1)

        return off_policy_scores(chosen, self._scores(chosen, compute, routed=self.config.routing_replay))

    @torch.no_grad()
    def _scores(
        self,
        samples: Sequence[Sample],
        compute: Callable[[RowOutput[Sample]], torch.Tensor],
        passes: Passes | None = None,
        *,
        routed: bool = False,
    ) -> Scores:
        """The results of `compute`, one for each target of a micro-batch, by sample, on all ranks."""

        def found_of(output: RowOutput[Sample]) -> tuple[torch.Tensor, dict[str, np.ndarray]]:
            lengths = [len(sample.output_ids) for sample in output.sequences]
            parts = torch.split(compute(output).cpu(), lengths)
            by_call = {s.call_id: part.numpy() for s, part in zip(output.sequences, parts, strict=True)}
            return output.hidden.new_zeros(()), by_call

        found = (passes or self.passes).run(self._shared(samples), found_of, backward=False, routed=routed)
        own = {call_id: values for of_part in found for call_id, values in of_part.items()}
        return {call_id: values for of_copy in self.ranks.gather(own) for call_id, values in of_copy.items()}

    @contextmanager
    def _weights_of(self, folder: Path) -> Iterator[None]:
        """The weights of another folder within the block."""
        if folder.absolute() == self.folder.absolute() and self.num_steps == 0:
            yield
            return
        kept = [parameter.detach().cpu().clone() for parameter in self.network.parameters()]
        self._fill(folder)
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, own in zip(self.network.parameters(), kept, strict=True):
                    parameter.data.copy_(own)

    def _weights_are_finite(self) -> bool:
        networks = [self.network, *([self.critic.trained.network] if self.critic is not None else [])]
        own = all(bool(weights.isfinite().all()) for network in networks for weights in network.parameters())
        return all(self.ranks.of_all(own))


def save_config(source: Path, target: Path, precision: str) -> None:
    """Write what a folder holds besides weights and state, as those of `source`. Raises OSError."""
    config: Any = AutoConfig.from_pretrained(source, local_files_only=True)
    config.dtype = getattr(torch, precision)
    config.save_pretrained(target)
    copy_tokenizer(source, target)
