"""Routing replay (`model/routing_replay.py`) in Megatron-core's layers, each of which knows its own tokens.

Invariant: a layer's experts travel with its row, as in `balanced.py`: also where a pipeline has several micro-batches
under way, and where a layer is recomputed. Megatron-core's own queue for recomputed layers is not needed.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.moe.router_replay import RouterReplayAction
from megatron.core.transformer.transformer_layer import TransformerLayer

from weir.trainer.model.routing_replay import RoutedShape


def replay_routers(network: torch.nn.Module, shape: RoutedShape) -> None:
    """Have the routers of a network, which was made with `replay`, choose what rows say."""
    for layer in network.modules():
        if isinstance(layer, TransformerLayer):
            for part in layer.modules():
                if isinstance(part, TopKRouter):
                    _replay(layer, part, shape)


def _replay(layer: Any, router: Any, shape: RoutedShape) -> None:
    number = layer.layer_number - 1  # of the model
    own = slice(number * shape.chosen, (number + 1) * shape.chosen)

    def begins(_: Any, __: Any, row: dict[str, Any]) -> None:
        experts = row["packed_seq_params"].experts
        if experts is None:
            router.router_replay.clear_router_replay_action()
            return
        if layer.config.sequence_parallel:
            parts = experts.chunk(parallel_state.get_tensor_model_parallel_world_size())
            experts = parts[parallel_state.get_tensor_model_parallel_rank()]
        router.router_replay.target_topk_idx = experts[:, own].long()
        router.router_replay.set_router_replay_action(RouterReplayAction.REPLAY_FORWARD)

    layer.register_forward_pre_hook(begins, with_kwargs=True)
