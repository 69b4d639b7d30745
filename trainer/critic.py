"""The critic of PPO: a model of its own that values the state before each target token.

Invariant: it begins as the policy's first weights (or a folder's) with a head of zeros, so its first values are 0; its
weights and optimiser are in one file of each version folder, and loading it gives the same bits as going on in memory.
Not here: what its values become (`token_credit.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weir.trainer.batching import Batch, lay_out, micro_batches
from weir.trainer.config import TrainerConfig
from weir.trainer.errors import VersionError
from weir.trainer.model import TokenModel, load_model
from weir.trainer.samples import Sample
from weir.trainer.scoring import Scores, by_sample
from weir.trainer.token_credit import TokenCredit

CRITIC_FILE = "critic.pt"


class ValueModel(torch.nn.Module):
    """A transformer with one number for each state in place of a vocabulary."""

    def __init__(self, model: TokenModel) -> None:
        super().__init__()
        self.base = copy.deepcopy(model.network.base_model)
        self.head = torch.nn.Linear(model.network.get_output_embeddings().in_features, 1)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def forward(self, batch: Batch) -> torch.Tensor:
        """The values of the states before the batch's targets, shape (N,)."""
        segments = {} if batch.segments is None else {"segments": batch.segments}
        hidden = self.base(
            input_ids=batch.ids, position_ids=batch.positions, use_cache=False, **segments
        ).last_hidden_state
        values: torch.Tensor = self.head(hidden.flatten(0, 1)[batch.predictors])[:, 0]
        return values


def value_loss(values: torch.Tensor, old: torch.Tensor, returns: torch.Tensor, clip: float | None) -> torch.Tensor:
    """PPO's clipped value loss (arXiv 1707.06347, as in OpenAI's baselines), shape (N,).

    max((V - R)², (clip(V, V_old ± clip) - R)²) / 2.
    """
    plain = (values - returns).square()
    if clip is None:
        return plain / 2
    return torch.maximum(plain, (values.clamp(old - clip, old + clip) - returns).square()) / 2


class Critic:
    """A value model with its AdamW, beside the learner's policy."""

    def __init__(self, folder: Path, config: TrainerConfig, policy: TokenModel, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.layout = policy.layout(share_prefixes=config.share_prefixes)
        first = policy if config.critic_path is None else load_model(Path(config.critic_path), device)
        self.model = ValueModel(first).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.critic_lr or config.lr, betas=config.betas, weight_decay=0.0
        )
        if (folder / CRITIC_FILE).exists():
            self._load(folder / CRITIC_FILE)

    @torch.no_grad()
    def values(self, samples: Sequence[Sample]) -> Scores:
        """The value of the state before each target of each sample."""
        return by_sample(samples, self.config, self.layout, lambda part: self.model(self._laid(part)))

    def accumulate(
        self,
        samples: Sequence[Sample],
        weights: Mapping[str, float],
        credit: Mapping[str, TokenCredit],
        old_values: Scores,
    ) -> float:
        """Add the gradient of the step's value loss to the parameters; the loss."""
        total = 0.0
        for part in micro_batches(samples, self.config.token_budget, self.layout):
            returns = self._flat([credit[sample.call_id].returns for sample in part])
            old = self._flat([old_values[sample.call_id] for sample in part])
            weight = self._flat([np.full(len(sample.output_ids), weights[sample.call_id]) for sample in part])
            losses = value_loss(self.model(self._laid(part)), old, returns, self.config.value_clip)
            loss = (losses * weight).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        return total

    def save(self, folder: Path) -> None:
        """Write weights and optimiser into a version folder."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, folder / CRITIC_FILE)

    def _load(self, file: Path) -> None:
        try:
            state = torch.load(file, map_location=self.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise VersionError(f"cannot load the critic from {file}: {error}") from error
        for group in self.optimizer.param_groups:  # the settings decide, the file holds the moments
            group.update(lr=self.config.critic_lr or self.config.lr, betas=self.config.betas)

    def _laid(self, samples: Sequence[Sample]) -> Batch:
        return lay_out(samples, self.layout, self.device)

    def _flat(self, arrays: Sequence[Any]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(arrays).astype(np.float32)).to(self.device)
