"""Routing replay: a mixture's tokens go to the experts that the engine sent them to (arXiv 2510.11370).

The chosen experts' shares come from the trained router's scores, with gradient, as they do where it chooses: of
Qwen3-MoE a softmax, of DeepSeek-V3 sigmoids, without the bias that helps to choose and without its groups.
Invariant: a pass replays exactly where its batch holds experts, also in layers that its backward pass recomputes;
batches of a reference, a critic and supervised rows hold none, and these route for themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

from weir.store.records.call_record import Experts
from weir.trainer.errors import TrainerUsageError

REPLAYED = ("qwen3_moe", "deepseek_v3")  # the families whose routers are replayed


class Routed(Protocol):
    """A sample with the experts of its tokens."""

    @property
    def call_id(self) -> str: ...

    @property
    def routed_experts(self) -> Experts | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedShape:
    """What a model routes."""

    layers: int
    chosen: int  # experts of each token in a layer
    experts: int
    dense: int = 0  # first layers, which have no experts; engines give numbers for these too, which say nothing

    @classmethod
    def of(cls, settings: Any) -> RoutedShape:
        """By a model's configuration. Raises `TrainerUsageError` where its routing is not replayed."""
        family = settings.model_type
        between = family == "qwen3_moe" and (settings.mlp_only_layers or settings.decoder_sparse_step != 1)
        if family not in REPLAYED or between:
            raise TrainerUsageError(
                f"trainer.routing_replay replays the routers of {' and '.join(REPLAYED)} without layers of no experts "
                f"between those with them, and this model is {family}: remove routing_replay"
            )
        return cls(
            layers=settings.num_hidden_layers,
            chosen=settings.num_experts_per_tok,
            experts=settings.num_local_experts,
            dense=settings.first_k_dense_replace if family == "deepseek_v3" else 0,
        )

    def check(self, samples: Iterable[Routed]) -> None:
        """Raise `TrainerUsageError` where a sample's experts are not those of a model of this shape."""
        for sample in samples:
            found = sample.routed_experts
            if found is None or found.shape[1] != self.layers * self.chosen or found.max() >= self.experts:
                told = "no experts" if found is None else f"{found.shape[1]} experts up to {found.max()}"
                raise TrainerUsageError(
                    f"call {sample.call_id} is recorded with {told} of each token, and this model has {self.layers} "
                    f"layers that choose {self.chosen} of {self.experts}: it was drawn from another model; remove "
                    "routing_replay, or leave its group out (trainer.groups_where)"
                )
            first = np.sort(found[0].reshape(self.layers, self.chosen)[self.dense :], axis=1)
            if (first[:, 1:] == first[:, :-1]).any():
                raise TrainerUsageError(
                    f"call {sample.call_id} is recorded with an expert that a token goes to twice in one layer: its "
                    "engine did not see what its routers chose (SGLang's does not where a fused kernel chooses, as "
                    "with --moe-runner-backend flashinfer_trtllm); serve with another, or remove routing_replay"
                )


class RoutingReplay:
    """Makes the routers of a model choose what a batch says."""

    def __init__(self, network: Any) -> None:
        """Raises `TrainerUsageError` for a model whose routers are not known."""
        self.shape = RoutedShape.of(network.config.get_text_config())
        self.experts: torch.Tensor | None = None  # (t, layers × chosen) of the pass; None: routers choose
        for number, layer in enumerate(network.base_model.layers):
            for part in layer.modules():
                if isinstance(part, Qwen3MoeTopKRouter | DeepseekV3TopkRouter):
                    self._replay(part, number)

    def _replay(self, router: Any, layer: int) -> None:
        own = slice(layer * self.shape.chosen, (layer + 1) * self.shape.chosen)
        shares_of = _of_sigmoids if isinstance(router, DeepseekV3TopkRouter) else _of_softmax

        def routed(_: Any, __: Any, output: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            if self.experts is None:
                return output
            logits, scores, _ = output
            chosen = self.experts[:, own].long()
            return logits, shares_of(router, logits, chosen).to(scores.dtype), chosen

        router.register_forward_hook(routed, prepend=True)  # a load-balancing loss counts what is replayed


def _of_softmax(router: Any, logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    shares = logits.softmax(-1, dtype=torch.float32).gather(1, chosen)
    return shares / shares.sum(-1, keepdim=True) if router.norm_topk_prob else shares


def _of_sigmoids(router: Any, logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    shares = logits.sigmoid().gather(1, chosen)
    if router.norm_topk_prob:
        shares = shares / (shares.sum(-1, keepdim=True) + 1e-20)
    scaled: torch.Tensor = shares * router.routed_scaling_factor
    return scaled
