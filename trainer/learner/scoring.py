"""Logprobs of samples under given weights, without gradient: the trained model's or a reference model's.

Invariant: a sample's logprobs are computed once in a round, before its first optimiser step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from weir.store.records.call_record import Logprobs
from weir.trainer.credit.samples import Sample
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.loading import open_model
from weir.trainer.model.batching import Layout, lay_out, micro_batches
from weir.trainer.model.token_model import TokenModel
from weir.trainer.settings.config import TrainerConfig

Scores = dict[str, Logprobs]  # by call id, shape (N,)


def by_sample(
    samples: Sequence[Sample],
    config: TrainerConfig,
    layout: Layout,
    ranks: Ranks,
    compute: Callable[[Sequence[Sample]], torch.Tensor],
    *,
    routed: bool = False,
) -> Scores:
    """The results of `compute`, one number per target of a micro-batch, by sample; every rank gets all samples."""
    scores: Scores = {}
    for part, _ in ranks.share(micro_batches(samples, config.token_budget, layout, routed=routed)):
        lengths = [len(sample.output_ids) for sample in part]
        for sample, found in zip(part, torch.split(compute(part).cpu(), lengths), strict=True):
            scores[sample.call_id] = found.numpy()
    return {call_id: found for of_share in ranks.gather_shares(scores) for call_id, found in of_share.items()}


@torch.no_grad()
def score(
    model: TokenModel,
    samples: Sequence[Sample],
    config: TrainerConfig,
    device: torch.device,
    ranks: Ranks,
    *,
    routed: bool = False,
) -> Scores:
    """The logprobs of each sample's targets, in nats, at its sampling temperature; with `routed` by its experts."""
    layout = model.layout(share_prefixes=config.share_prefixes)

    def logprobs(part: Sequence[Sample]) -> torch.Tensor:
        temperatures = np.concatenate([np.full(len(sample.output_ids), sample.temperature) for sample in part])
        batch = lay_out(part, layout, device, routed=routed)
        scored: torch.Tensor = model(batch, torch.from_numpy(temperatures.astype(np.float32)).to(device)).logprobs
        return scored

    return by_sample(samples, config, layout, ranks, logprobs, routed=routed)


def score_by(
    folder: Path, samples: Sequence[Sample], config: TrainerConfig, device: torch.device, ranks: Ranks
) -> Scores:
    """As `score`, under the weights of a folder, which are loaded for this call only."""
    model = open_model(folder, device, ranks, precision=config.precision, compiled=config.compile_layers)
    return score(model, samples, config, device, ranks)
