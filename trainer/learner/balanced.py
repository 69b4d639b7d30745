"""The load-balancing loss beside a step's passes, in the torch backend (`model/expert_balance.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from weir.trainer.learner.distributed import Ranks
from weir.trainer.model.batching import Layout, Tokens, lay_out
from weir.trainer.model.token_model import TokenModel


@contextmanager
def balanced(
    model: TokenModel,
    parts: Sequence[tuple[Sequence[Tokens], bool]],
    layout: Layout,
    device: torch.device,
    ranks: Ranks,
    *,
    scale: float = 1.0,
    routed: bool = False,
) -> Iterator[float]:
    """Give the load-balancing loss of the micro-batches of all ranks, 0 for a model without one.

    `parts` are this rank's micro-batches, each with whether it counts; with `routed` their experts are replayed. Within
    the block their passes add `scale` times the loss's gradient.
    """
    if model.balance is None:
        yield 0.0
        return

    def count() -> None:
        for part, counts in parts:
            model(lay_out(part, layout, device, counts=counts, routed=routed).without_targets())

    with model.balance.added(count, ranks.gather, device, scale=scale) as loss:
        yield loss
