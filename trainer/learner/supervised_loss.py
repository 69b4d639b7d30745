"""The supervised loss: the mean cross-entropy of all targets of the rows, over micro-batches and ranks.

Invariant: the denominator is known before the first micro-batch, so that splitting, packing and ranks change no
gradient beyond rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.learner.balanced import balanced
from weir.trainer.learner.distributed import Ranks
from weir.trainer.model.batching import Layout, lay_out, micro_batches
from weir.trainer.model.token_model import TokenModel


def accumulate_supervised(
    model: TokenModel,
    rows: Sequence[SupervisedRow],
    *,
    token_budget: int,
    layout: Layout,
    device: torch.device,
    coef: float = 1.0,
    ranks: Ranks = Ranks(),
) -> float:
    """Add the gradient of coef · (-1/N) Σ log p(target) over the rows' N targets; returns the mean without `coef`.

    Beside a policy loss this is the pretraining term of InstructGPT's PPO-ptx (arXiv 2203.02155, equation 2), as a mean
    over tokens. The mean is in nats. A model's load-balancing loss over the same rows is added before `coef`, and not
    part of what is returned.
    """
    denominator = sum(row.num_targets for row in rows)
    total = 0.0
    parts = ranks.share(micro_batches(rows, token_budget, layout))
    with balanced(model, parts, layout, device, ranks, scale=coef):
        for part, counts in parts:
            batch = lay_out(part, layout, device, counts=counts)
            loss = -model(batch).logprobs.sum() * (counts / denominator)
            (coef * loss).backward()
            total += float(loss.detach())
    return sum(ranks.gather_shares(total))


@torch.no_grad()
def mean_loss(
    model: TokenModel, rows: Sequence[SupervisedRow], *, token_budget: int, layout: Layout, device: torch.device
) -> float:
    """The mean cross-entropy of all targets of the rows, in nats, without gradient."""
    parts = micro_batches(rows, token_budget, layout)
    total = sum(-float(model(lay_out(part, layout, device)).logprobs.sum()) for part in parts)
    return total / sum(row.num_targets for row in rows)
