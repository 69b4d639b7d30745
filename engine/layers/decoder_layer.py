"""The parts of a decoder layer: attention's projections, and a feed-forward block or a mixture of such blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from weir.engine.layers.projections import Projection


@dataclass(frozen=True, slots=True)
class FeedForward:
    """A gated block of two products."""

    gate_up: Projection
    down: Projection

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """(…, width) → (…, width)."""
        gate, up = self.gate_up(inputs).chunk(2, -1)
        return self.down(functional.silu(gate) * up)

    def projections(self) -> Iterator[Projection]:
        yield from (self.gate_up, self.down)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Experts, of which a router chooses some for each token."""

    router: Projection
    experts: list[FeedForward]
    num_chosen: int
    normalised: bool  # the chosen experts' probabilities add up to 1

    def __call__(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(…, width) → (…, width), and the chosen experts (…, chosen), likeliest first."""
        tokens = inputs.flatten(0, -2)
        shares, chosen = self.router(tokens).softmax(-1, dtype=torch.float32).topk(self.num_chosen, -1)
        if self.normalised:
            shares = shares / shares.sum(-1, keepdim=True)
        shares = shares.to(inputs.dtype)
        mixed = torch.zeros_like(tokens)
        for number in sorted(set(chosen.flatten().tolist())):
            rows, places = torch.where(chosen == number)
            mixed.index_add_(0, rows, self.experts[number](tokens[rows]) * shares[rows, places, None])
        return mixed.view(inputs.shape), chosen.view(*inputs.shape[:-1], -1)

    def projections(self) -> Iterator[Projection]:
        yield self.router
        for expert in self.experts:
            yield from expert.projections()


@dataclass(frozen=True, slots=True)
class Layer:
    """The parts of one decoder layer."""

    before_attention: Any
    heads: Projection
    query_norm: Any | None
    key_norm: Any | None
    attention_out: Projection
    before_mlp: Any
    mlp: FeedForward | Mixture


def layer_of(layer: Any, config: Any) -> Layer:
    """A layer of transformers' classes, whose experts are modules of their own (`weights.divide_experts`)."""
    attention = layer.self_attn
    return Layer(
        layer.input_layernorm,
        Projection(attention.q_proj, attention.k_proj, attention.v_proj),
        getattr(attention, "q_norm", None),
        getattr(attention, "k_norm", None),
        Projection(attention.o_proj),
        layer.post_attention_layernorm,
        _mlp_of(layer.mlp, config),
    )


def _mlp_of(mlp: Any, config: Any) -> FeedForward | Mixture:
    if not hasattr(mlp, "experts"):
        return _feed_forward_of(mlp.gate_proj, mlp.up_proj, mlp.down_proj)
    experts = [_feed_forward_of(one["gate_proj"], one["up_proj"], one["down_proj"]) for one in mlp.experts]
    return Mixture(Projection(mlp.gate), experts, config.num_experts_per_tok, config.norm_topk_prob)


def _feed_forward_of(gate: Any, up: Any, down: Any) -> FeedForward:
    return FeedForward(Projection(gate, up), Projection(down))
