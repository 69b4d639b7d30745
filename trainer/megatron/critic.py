"""PPO's critic over the layout of the model: `learner/critic.py`, whose states come from Megatron-core's layers.

Invariant: first weights, value loss, optimiser and state are those of the torch backend's critic. Tensor ranks hold the
value head whole and compute the same values, of which each has the whole gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weir.trainer.credit.samples import Sample
from weir.trainer.learner.critic import value_loss
from weir.trainer.learner.saved_state import CRITIC, NUM_STEPS, SavedState
from weir.trainer.learner.scoring import Scores
from weir.trainer.losses.gae import TokenCredit
from weir.trainer.megatron.architecture import check_layout, read_architecture
from weir.trainer.megatron.groups import ModelRanks
from weir.trainer.megatron.packed_model import empty_model
from weir.trainer.megatron.passes import Passes, RowOutput
from weir.trainer.megatron.state_files import Trained, load
from weir.trainer.megatron.stepper import MegatronStepper
from weir.trainer.megatron.weight_map import Place
from weir.trainer.megatron.weights import Rows, check_shapes, fill
from weir.trainer.model.stored_tensors import BytesRead, StoredTensors
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.megatron import MegatronSettings


class MegatronCritic:
    """A value model with its AdamW; `first` is the folder of its first weights, `saved` the state it continues from."""

    def __init__(
        self,
        first: Path,
        config: TrainerConfig,
        device: torch.device,
        layout: MegatronSettings,
        count: BytesRead,
        saved: SavedState | None,
    ) -> None:
        self.config = config
        self.device = device
        model = read_architecture(first)
        check_layout(model, layout, first)
        place = Place.here(model, layout)
        precision = config.precision if config.critic_path is None else "float32"
        network = empty_model(
            model, layout, precision=precision, recompute=config.gradient_checkpointing, critic=True
        ).to(device)
        stored = StoredTensors(first, count)
        check_shapes(model, stored)
        rows = _with_head(stored.rows, model.hidden)
        fill(network, model, place, rows)
        own = {"lr": config.critic_lr or config.peak_lr, "weight_decay": 0.0, "ema": None}
        stepper = MegatronStepper(network, config.model_copy(update=own), layout)
        self.trained = Trained(part=CRITIC, stepper=stepper, network=network, model=model, place=place)
        self.passes = Passes(network, stepper.wrapped, model, layout, device)
        known = saved if saved is not None and f"{CRITIC}/{NUM_STEPS}" in saved else None
        load(self.trained, known, None if precision == "float32" else rows)

    @property
    def stepper(self) -> MegatronStepper:
        """Its optimiser."""
        return self.trained.stepper

    def values_of(self, output: RowOutput[Sample]) -> torch.Tensor:
        """The value of the state before each target of a micro-batch."""
        return self.passes.values(output)

    def accumulate(
        self,
        parts: Sequence[tuple[list[Sample], bool]],
        weights: Mapping[str, float],
        credit: Mapping[str, TokenCredit],
        old_values: Scores,
        ranks: ModelRanks,
    ) -> float:
        """Add the gradient of the step's value loss, of this copy's micro-batches; returns the loss over all copies."""

        def loss_of(output: RowOutput[Sample]) -> tuple[torch.Tensor, float]:
            samples = output.sequences
            returns = self._flat([credit[sample.call_id].returns for sample in samples])
            old = self._flat([old_values[sample.call_id] for sample in samples])
            weight = self._flat([np.full(len(sample.output_ids), weights[sample.call_id]) for sample in samples])
            losses = value_loss(self.values_of(output), old, returns, self.config.value_clip)
            loss = (losses * weight).sum() * output.counts
            return loss, float(loss.detach())

        return sum(ranks.gather(sum(self.passes.run(parts, loss_of, backward=True))))

    def _flat(self, arrays: Sequence[Any]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(arrays).astype(np.float32)).to(self.device)


def _with_head(rows: Rows, hidden: int) -> Rows:
    """The rows of a folder, and a head of zeros, which no folder holds."""

    def found(name: str, start: int, stop: int) -> torch.Tensor:
        if name.startswith("value_head."):
            return torch.zeros((1, hidden) if name.endswith("weight") else (1,))
        return rows(name, start, stop)

    return found
