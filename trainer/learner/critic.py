"""PPO's critic: a separate model that estimates the value of the state before each target token.

Invariant: it starts from the policy's first weights (or a given folder's) with a head of zeros, so its first values are
0. Weights and optimiser are one file of each version folder, and loading it yields the same bits as keeping them in
memory. GAE (`losses/gae.py`) uses its values.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weir.trainer.credit.samples import Sample
from weir.trainer.errors import VersionError
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.optimizer import Stepper
from weir.trainer.learner.saved_state import CRITIC_FILE
from weir.trainer.learner.scoring import Scores, by_sample
from weir.trainer.losses.gae import TokenCredit
from weir.trainer.model.batching import Batch, lay_out, micro_batches
from weir.trainer.model.context_ranks import part_of
from weir.trainer.model.sharded_model import empty_model, fill
from weir.trainer.model.stored_tensors import BytesRead, StoredTensors
from weir.trainer.model.token_model import TokenModel, load_model, predicting_states, save_state
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import FileEntry


class ValueModel(torch.nn.Module):
    """A transformer with a scalar value head in place of the vocabulary head."""

    def __init__(self, model: TokenModel) -> None:
        super().__init__()
        self.compute = model.compute
        self.offloads = model.offloads
        self.context = model.context
        self.base = copy.deepcopy(model.network.base_model)
        self.head = torch.nn.Linear(model.network.get_output_embeddings().in_features, 1)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def forward(self, batch: Batch) -> torch.Tensor:
        """The values of the states before the batch's targets, shape (N,)."""
        part = part_of(batch, self.context)
        states = predicting_states(self.base, part.batch, self.compute, offloads=self.offloads)
        values: torch.Tensor = self.head(states.to(self.head.weight.dtype))
        return part.of_all(values[:, 0].float())


def value_loss(values: torch.Tensor, old: torch.Tensor, returns: torch.Tensor, clip: float | None) -> torch.Tensor:
    """PPO's clipped value loss (arXiv 1707.06347, as in OpenAI's baselines), shape (N,).

    max((V - R)², (clip(V, V_old ± clip) - R)²) / 2.
    """
    plain = (values - returns).square()
    if clip is None:
        return plain / 2
    return torch.maximum(plain, (values.clamp(old - clip, old + clip) - returns).square()) / 2


class Critic:
    """A value model with its AdamW. `policy` is the learner's model, before its weights are sharded."""

    def __init__(
        self,
        folder: Path,
        config: TrainerConfig,
        policy: TokenModel,
        device: torch.device,
        ranks: Ranks,
        count: BytesRead | None = None,
    ) -> None:
        self.config = config
        self.ranks = ranks
        self.device = device
        self.layout = policy.layout(share_prefixes=config.share_prefixes)
        self.model = self._opened(Path(config.critic_path or folder), policy, count)
        self.stepper = Stepper(self.model, config, lr=config.critic_lr or config.peak_lr, weight_decay=0.0)
        if not ranks.shards and (folder / CRITIC_FILE).exists():
            self._load(folder / CRITIC_FILE)

    def _opened(self, first: Path, policy: TokenModel, count: BytesRead | None) -> ValueModel:
        """The value model before its first step, each rank's own rows."""
        if not self.ranks.shards:
            begun = policy if self.config.critic_path is None else load_model(first, self.device)
            return ValueModel(begun).to(self.device)
        empty = empty_model(first, precision=self.config.precision if self.config.critic_path is None else "float32")
        empty.context = self.ranks.context
        model = ValueModel(empty)
        model.head.to(self.device)
        self.ranks.shard(model, model.base.layers)
        prefix = f"{empty.network.base_model_prefix}."

        def stored_name(name: str) -> str | None:
            return prefix + name.removeprefix("base.") if name.startswith("base.") else None

        fill(
            model,
            StoredTensors(first, count),
            stored_name,
            network=empty.network,
            device=self.device,
            home=self.ranks.home(self.device),
        )
        return model

    @torch.no_grad()
    def values(self, samples: Sequence[Sample]) -> Scores:
        """The value of the state before each target of each sample, by call id, shape (N,)."""
        return by_sample(samples, self.config, self.layout, self.ranks, lambda part: self.model(self._laid(part)))

    def accumulate(
        self,
        samples: Sequence[Sample],
        weights: Mapping[str, float],
        credit: Mapping[str, TokenCredit],
        old_values: Scores,
    ) -> float:
        """Add the gradient of the step's value loss to the parameters; returns the loss."""
        total = 0.0
        for part, counts in self.ranks.share(micro_batches(samples, self.config.token_budget, self.layout)):
            returns = self._flat([credit[sample.call_id].returns for sample in part])
            old = self._flat([old_values[sample.call_id] for sample in part])
            weight = self._flat([np.full(len(sample.output_ids), weights[sample.call_id]) for sample in part])
            losses = value_loss(self.model(self._laid(part)), old, returns, self.config.value_clip)
            loss = (losses * weight).sum() * counts
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        return sum(self.ranks.gather_shares(total))

    def save(self, folder: Path) -> dict[str, FileEntry]:
        """Write weights and optimiser into a version folder, in one process. Raises OSError."""
        state = {"weights": self.stepper.weights(), "steps": self.stepper.state()}
        return {CRITIC_FILE: save_state(state, folder / CRITIC_FILE)}

    def _load(self, file: Path) -> None:
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            self.stepper.load_weights(state["weights"])
            self.stepper.load(state["steps"])
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise VersionError(f"cannot load the critic from {file}: {error}") from error

    def _laid(self, samples: Sequence[Sample]) -> Batch:
        return lay_out(samples, self.layout, self.device)

    def _flat(self, arrays: Sequence[Any]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(arrays).astype(np.float32)).to(self.device)
