"""The load-balancing loss of a mixture of experts, over all tokens of an optimiser step.

loss = coef · E · Σ_e f_e · P_e, where f_e is the share of tokens that chose expert e (these add up to the number of
experts that each chooses) and P_e the mean of the router's softmax at e, both over all layers and tokens; coef is the
model's `router_aux_loss_coef`. That is transformers' `load_balancing_loss_func` (Switch Transformer, arXiv 2101.03961,
equations 4 to 6), taken over the whole step in place of a micro-batch, as arXiv 2501.11873 advises. Megatron-core's
`global_aux_loss` also counts over the batch, but layer by layer.

Invariant: f_e has no gradient, so the loss is linear in the routers' softmaxes once f_e is known. A pass without
gradient counts it before the step's passes with gradient, each of which adds its own tokens' part: micro-batches,
packing, shared prefixes and ranks change nothing beyond rounding. A shared token counts once for each sequence that
contains it, padding and repeated micro-batches not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

BALANCED = "qwen3_moe"  # the family whose loss is computed


def is_balanced(settings: Any) -> bool:
    """Whether a model's configuration asks for the loss (`output_router_logits`), with a coefficient."""
    asks = getattr(settings, "output_router_logits", False) and settings.model_type == BALANCED
    return bool(asks and settings.router_aux_loss_coef)


def balance_of(settings: Any) -> ExpertBalance | None:
    """The balance of a model whose configuration asks for the loss."""
    if not is_balanced(settings):
        return None
    return ExpertBalance(
        coef=settings.router_aux_loss_coef, experts=settings.num_experts, chosen=settings.num_experts_per_tok
    )


class ExpertBalance:
    """Counts what routers choose, or adds the loss's gradient by their softmaxes; neither, outside of `added`."""

    def __init__(self, *, coef: float, experts: int, chosen: int) -> None:
        self.coef = coef
        self.experts = experts
        self.chosen = chosen  # experts of each token
        self.often: torch.Tensor | None = None  # (t,) of the pass that is being computed: how often each token counts
        self._counted: torch.Tensor | None = None  # (2, E): tokens that chose each, sums of the softmaxes
        self._slope: torch.Tensor | None = None  # (E,): the loss's derivative by a token's softmax

    @property
    def is_active(self) -> bool:
        """Whether a pass is counted or adds to the gradient."""
        return self._counted is not None or (self._slope is not None and torch.is_grad_enabled())

    @contextmanager
    def added(
        self,
        compute: Callable[[], object],
        gather: Callable[[list[list[float]]], list[list[list[float]]]],
        device: torch.device,
        *,
        scale: float = 1.0,
    ) -> Iterator[float]:
        """Give the loss of all tokens; within the block passes with gradient add theirs of `scale` times its gradient.

        `compute` runs this rank's micro-batches through the model without gradient, `gather` has the lists of all
        ranks that compute different tokens or layers.
        """
        self._counted = torch.zeros(2, self.experts, dtype=torch.float64, device=device)
        try:
            with torch.no_grad():
                compute()
            found = gather(self._counted.tolist())
        finally:
            self._counted = None
        counts, probabilities = torch.tensor(found, dtype=torch.float64, device=device).sum(0)
        rows = counts.sum() / self.chosen  # tokens × layers
        of_one = self.coef * self.experts * counts / rows.square()
        self._slope = (scale * of_one).float()
        try:
            yield float(of_one @ probabilities)
        finally:
            self._slope = None

    def routed(
        self, logits: torch.Tensor, scores: torch.Tensor, chosen: torch.Tensor, tokens: torch.Tensor
    ) -> torch.Tensor:
        """The scores (t, …) of t tokens, whose backward pass adds the loss's gradient where one is to be added.

        `logits` has shape (t, E), `chosen` (t, k) indices of experts; `tokens`, (t,), is how often each token counts.
        """
        if self._counted is not None:
            often = tokens.double()
            self._counted[0] += torch.bincount(
                chosen.flatten(), often.repeat_interleave(self.chosen), minlength=self.experts
            )
            self._counted[1] += often @ logits.softmax(-1, dtype=torch.float32).double()
        if self._slope is None or not torch.is_grad_enabled():
            return scores
        loss = tokens.float() @ (logits.softmax(-1, dtype=torch.float32) @ self._slope)
        with_loss: torch.Tensor = _WithLoss.apply(scores, loss)  # type: ignore[no-untyped-call]
        return with_loss


class _WithLoss(torch.autograd.Function):
    """Scores as they are, whose backward pass differentiates a loss besides."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(loss)
        return scores.view_as(scores)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (loss,) = ctx.saved_tensors
        return gradient, torch.ones_like(loss)
