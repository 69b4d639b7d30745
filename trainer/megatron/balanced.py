"""The load-balancing loss (`model/expert_balance.py`) in Megatron-core's layers, each of which knows its own tokens.

Invariant: a layer's tokens travel with its row, also where a pipeline has several micro-batches under way and where a
layer is recomputed. Ranks that divide tokens (tensor, context, copies) or layers (pipeline) count their own.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_layer import TransformerLayer

from weir.trainer.megatron.architecture import Architecture
from weir.trainer.model.expert_balance import ExpertBalance


def watch_routers(network: torch.nn.Module, model: Architecture) -> ExpertBalance | None:
    """The balance of a model that asks for it, which sees what every router of the network chooses; else None."""
    if model.experts is None or not model.experts.balance:
        return None
    found = ExpertBalance(coef=model.experts.balance, experts=model.experts.count, chosen=model.experts.chosen)
    for layer in network.modules():
        if isinstance(layer, TransformerLayer):
            _watch(layer, found)
    return found


def _watch(layer: Any, balance: ExpertBalance) -> None:
    own: list[torch.Tensor] = []  # of the row that the layer computes

    def begins(_: Any, __: Any, row: dict[str, Any]) -> None:
        often = row["packed_seq_params"].often
        if layer.config.sequence_parallel:
            parts = often.chunk(parallel_state.get_tensor_model_parallel_world_size())
            often = parts[parallel_state.get_tensor_model_parallel_rank()]
        own[:] = [often]

    def routed(router: Any, inputs: tuple[torch.Tensor, ...], output: tuple[torch.Tensor, torch.Tensor]) -> Any:
        if not balance.is_active:
            return None
        scores, choices = output
        logits = router.gating(inputs[0]).flatten(0, -2)
        chosen = choices.nonzero()[:, 1].view(len(choices), -1)
        return balance.routed(logits, scores, chosen, own[0]), choices

    layer.register_forward_pre_hook(begins, with_kwargs=True)
    for part in layer.modules():
        if isinstance(part, TopKRouter):
            part.register_forward_hook(routed)
