"""One process of a model that Megatron-core divides: a round's steps over the stages and parts of a model.

Invariant: the steps are those of `learner/round_steps.py`, whose losses get the same logprobs as in the torch backend;
of the processes of one copy of the model all compute a micro-batch, and those of its last stage its loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.learner.off_policy import OffPolicyScores, off_policy_scores, truncation_rows
from weir.trainer.learner.round_steps import RoundSteps
from weir.trainer.learner.scoring import Scores
from weir.trainer.learner.step_stats import TokenStats
from weir.trainer.megatron.architecture import check_layout, check_reference, read_architecture
from weir.trainer.megatron.groups import ModelRanks
from weir.trainer.megatron.packed_model import empty_model
from weir.trainer.megatron.passes import Passes, RowOutput
from weir.trainer.megatron.stepper import MegatronStepper
from weir.trainer.megatron.weight_map import Place
from weir.trainer.megatron.weights import check_shapes, fill
from weir.trainer.model.batching import Layout, micro_batches
from weir.trainer.model.kept_mass import kept_mass_of
from weir.trainer.model.stored_tensors import BytesRead, StoredTensors
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.megatron import MegatronSettings
from weir.trainer.versions.version_folder import num_parameters


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
        self.network = empty_model(self.architecture, layout, recompute=config.gradient_checkpointing)
        self.network.to(device)
        self._fill(folder)
        self.stepper = MegatronStepper(self.network, config)
        self.passes = Passes(self.network, self.stepper.wrapped, self.architecture, layout, device)

    def _fill(self, folder: Path) -> None:
        stored = StoredTensors(folder, self.read)
        check_shapes(self.architecture, stored)
        fill(self.network, self.architecture, self.place, stored.rows)

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken over all rounds."""
        return self.stepper.num_steps

    @property
    def _steppers(self) -> list[MegatronStepper]:
        return [self.stepper]

    def accumulate(
        self, samples: Sequence[Sample], fresh_version: int, on_tokens: Callable[[int], None] = lambda _: None
    ) -> TokenStats:
        """As `RoundSteps.accumulate`; gradients are summed over ranks by the stepper."""
        weight_of = self._weights(samples, self.config.loss_mean)

        def loss_of(output: RowOutput[Sample]) -> tuple[torch.Tensor, TokenStats | None]:
            weights = [weight_of[sample.call_id] if output.counts else 0.0 for sample in output.sequences]
            predicted = self.passes.logprobs(output, self._temperatures(output.sequences))
            loss, stats = self._loss_of(
                output.sequences, predicted, weights, fresh_version, computed_tokens=output.row.num_tokens
            )
            on_tokens(sum(len(sample.output_ids) for sample in output.sequences))
            return loss, stats if output.counts else None

        found = self.passes.run(self._shared(samples), loss_of, backward=True)
        own = TokenStats()
        for part in found:
            if part is not None:
                own.add(part)
        stats = TokenStats()
        for of_copy in self.ranks.gather(own):
            stats.add(of_copy)
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

        found = self.passes.run(self._shared(rows), loss_of, backward=True)
        return sum(self.ranks.gather(sum(found)))

    def accumulate_critic(self, samples: Sequence[Sample]) -> None:
        """None: this backend has no critic."""

    def _shared(self, sequences: Sequence[Any]) -> list[tuple[list[Any], bool]]:
        """This copy's micro-batches, and whether each counts."""
        return self.ranks.share(micro_batches(sequences, self.config.token_budget, Layout.PACKED))

    def _temperatures(self, samples: Sequence[Sample]) -> torch.Tensor:
        return self._repeated([s.temperature for s in samples], [len(s.output_ids) for s in samples])

    def _score_by_policy(self, samples: Sequence[Sample]) -> Scores:
        def logprobs(output: RowOutput[Sample]) -> torch.Tensor:
            return self.passes.logprobs(output, self._temperatures(output.sequences)).logprobs

        return self._scores(samples, logprobs)

    def _score_by_reference(self, samples: Sequence[Sample]) -> Scores:
        with self._weights_of(self.reference):
            return self._score_by_policy(samples)

    def _score_by_critic(self, samples: Sequence[Sample]) -> Scores | None:
        del samples
        return None

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

        return off_policy_scores(chosen, self._scores(chosen, compute))

    @torch.no_grad()
    def _scores(self, samples: Sequence[Sample], compute: Callable[[RowOutput[Sample]], torch.Tensor]) -> Scores:
        """The results of `compute`, one for each target of a micro-batch, by sample, on all ranks."""

        def found_of(output: RowOutput[Sample]) -> tuple[torch.Tensor, dict[str, np.ndarray]]:
            lengths = [len(sample.output_ids) for sample in output.sequences]
            parts = torch.split(compute(output).cpu(), lengths)
            by_call = {s.call_id: part.numpy() for s, part in zip(output.sequences, parts, strict=True)}
            return output.hidden.new_zeros(()), by_call

        found = self.passes.run(self._shared(samples), found_of, backward=False)
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
        own = all(bool(parameter.isfinite().all()) for parameter in self.network.parameters())
        return all(self.ranks.of_all(own))
