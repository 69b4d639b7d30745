"""The sizes of a model that memory and time depend on, from its config.json alone.

Parameters are counted on a model without storage (torch's meta device), so the counts are those of the class that loads
the weights, for every family that transformers knows.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from weir.trainer.errors import TrainerUsageError
from weir.trainer.model.expert_balance import is_balanced
from weir.trainer.model.ops.eight_bit import has_blocks

CONFIG = "config.json"
# Matrices that every tensor rank holds whole: the router, and the first products of latent attention.
_WHOLE = ("mlp.gate.weight", "q_a_proj.weight", "kv_a_proj_with_mqa.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNumbers:
    """The parameters of one layer, by who holds them where processes divide it."""

    divided: int  # matrices that tensor ranks share: attention, feed-forward block, shared experts
    whole: int  # what every tensor rank holds
    experts: int  # of all routed experts together


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a causal language model; counts are of single numbers, not bytes."""

    model_type: str
    num_parameters: int
    num_active: int  # parameters that one token is computed with: of a mixture of experts, its chosen experts'
    num_expert_parameters: int  # of all experts that tokens are sent to
    layers: tuple[LayerNumbers, ...]
    num_layer_parameters: int  # of the largest layer
    num_unblocked: int  # parameters whose moments 8-bit AdamW keeps in float32
    hidden: int
    query: int  # width of all query heads together
    key: int  # width of all key heads together
    inner: int  # width of the feed-forward block that one token is computed with
    num_routed: int  # experts that one token is computed with; 0 without experts
    num_balanced: int  # experts whose shares the load-balancing loss differentiates for each token; 0 without the loss
    has_query_norm: bool
    tied: bool  # whether the head is the embedding
    vocabulary: int
    context: int | None  # tokens that the model was made for
    cached: int  # numbers that the KV cache holds for one token

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def num_root_parameters(self) -> int:
        """Parameters outside the layers: embeddings, the last norm, the head."""
        return self.num_parameters - self.num_in_layers

    @property
    def num_in_layers(self) -> int:
        """Parameters of all layers; they are taken as equally large."""
        return min(self.num_layers * self.num_layer_parameters, self.num_parameters)


def read_shape(folder: Path) -> ModelShape:
    """The shape of a Hugging Face folder, which needs to hold no weights. Raises `TrainerUsageError`."""
    file = folder / CONFIG
    return _shape_of(_Source(folder, file.read_bytes() if file.exists() else None))


@dataclass(frozen=True, slots=True)
class _Source:
    """A folder; those with the same config.json are equal."""

    folder: Path = field(compare=False)
    config: bytes | None


@functools.lru_cache(maxsize=2)
def _shape_of(source: _Source) -> ModelShape:
    """Cached, since each round asks for its parent's, and all versions have one configuration."""
    config, network = empty_network(source.folder)
    return _shape(config.get_text_config(), network)


def empty_network(folder: Path) -> tuple[Any, Any]:
    """The configuration of a folder and its model on torch's meta device. Raises `TrainerUsageError`."""
    if not (folder / CONFIG).exists():
        raise TrainerUsageError(f"{folder} is not a Hugging Face model folder: it has no config.json")
    try:
        config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
        with torch.device("meta"):
            network: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainerUsageError(
            f"{folder / CONFIG} describes no causal language model that transformers can build: {error}"
        ) from error
    return config, network


def _shape(config: Any, network: Any) -> ModelShape:
    heads = config.num_attention_heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    latent = getattr(config, "qk_head_dim", None)  # latent attention's; its head_dim is that of rotary embeddings
    head = latent or getattr(config, "head_dim", None) or config.hidden_size // heads
    layers = list(network.base_model.layers)
    experts, chosen = _num_experts(config)
    of_experts = sum(p.numel() for name, p in network.named_parameters() if ".experts." in name)
    total = sum(parameter.numel() for parameter in network.parameters())
    return ModelShape(
        model_type=str(config.model_type),
        num_parameters=total,
        num_active=total - of_experts + of_experts * chosen // experts,
        num_expert_parameters=of_experts,
        layers=tuple(map(layer_numbers, layers)),
        num_layer_parameters=max(sum(p.numel() for p in layer.parameters()) for layer in layers),
        num_unblocked=sum(p.numel() for p in network.parameters() if not has_blocks(p)),
        hidden=config.hidden_size,
        query=heads * head,
        key=key_heads * head,
        inner=_inner(config, experts, chosen),
        num_routed=chosen if experts > 1 else 0,
        num_balanced=experts if is_balanced(config) else 0,
        has_query_norm=any("q_norm" in name for name, _ in layers[0].named_parameters()),
        tied=bool(network.config.tie_word_embeddings),
        vocabulary=config.vocab_size,
        context=getattr(config, "max_position_embeddings", None),
        cached=_cached(config, key_heads * head),
    )


def layer_numbers(layer: Any) -> LayerNumbers:
    """The parameters of a layer."""
    parts = Counter[str]()
    for name, parameter in layer.named_parameters():
        parts[_kind(name, parameter)] += parameter.numel()
    return LayerNumbers(**{one.name: parts[one.name] for one in fields(LayerNumbers)})


def _kind(name: str, parameter: torch.Tensor) -> str:
    if ".experts." in name:
        return "experts"
    return "whole" if parameter.ndim == 1 or name.endswith(_WHOLE) else "divided"


def _num_experts(config: Any) -> tuple[int, int]:
    """Experts of a layer, and how many of them compute one token."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    experts = next((n for name in names if (n := getattr(config, name, None))), 1)
    return experts, getattr(config, "num_experts_per_tok", None) or 1


def _inner(config: Any, experts: int, chosen: int) -> int:
    width: int | None = getattr(config, "moe_intermediate_size", None) if experts > 1 else None
    shared: int = getattr(config, "n_shared_experts", None) or 0
    beside: int = getattr(config, "shared_expert_intermediate_size", None) or 0
    return (chosen + shared) * width + beside if width else int(config.intermediate_size)


def _cached(config: Any, key: int) -> int:
    """Keys and values of one token in every layer that keeps them; latent attention keeps a compressed form."""
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    keeping: int = sum(kind != "linear_attention" for kind in kinds)
    latent = getattr(config, "kv_lora_rank", None)
    return keeping * (int(latent + config.qk_rope_head_dim) if latent else 2 * key)
