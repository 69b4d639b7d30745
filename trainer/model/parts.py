"""The parts that a layout divides a model into: what tensor ranks share, what experts' ranks share, what all hold.

Counted on a model without storage, as `shape.py` counts: the numbers are those of the class that loads the weights.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weir.trainer.model.shape import LayerNumbers, empty_network, layer_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts(LayerNumbers):
    """The parameters of one layer, and what of a token crosses it."""

    keys: int  # numbers of keys and values of one token
    collectives: int  # blocks whose input tensor ranks gather: attention, and the feed-forward block but for experts


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParts:
    """A causal language model."""

    embedding: int
    head: int  # 0 where it is the embedding
    norm: int
    layers: tuple[LayerParts, ...]
    num_experts: int  # of a layer that has some
    key_heads: int

    @property
    def num_parameters(self) -> int:
        """Of the whole model."""
        in_layers = sum(layer.divided + layer.whole + layer.experts for layer in self.layers)
        return self.embedding + self.head + self.norm + in_layers

    def stages(self, count: int) -> list[tuple[LayerParts, ...]]:
        """The layers of each pipeline stage: equally many, or one more on stages in the middle."""
        base, more = divmod(len(self.layers), count)
        first = (count - more) // 2
        sizes = [base + (first <= at < first + more) for at in range(count)]
        starts = [sum(sizes[:at]) for at in range(count)]
        return [self.layers[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def read_parts(folder: Path) -> ModelParts:
    """The parts of a Hugging Face folder's model, which needs to hold no weights. Raises `TrainerUsageError`."""
    config, network = empty_network(folder)
    text = config.get_text_config()
    head = network.get_output_embeddings().weight
    embedding = network.get_input_embeddings().weight
    layers = tuple(_layer(layer, text) for layer in network.base_model.layers)
    rest = sum(p.numel() for p in network.parameters()) - sum(
        layer.divided + layer.whole + layer.experts for layer in layers
    )
    untied = 0 if text.tie_word_embeddings else head.numel()
    return ModelParts(
        embedding=embedding.numel(),
        head=untied,
        norm=rest - embedding.numel() - untied,
        layers=layers,
        num_experts=max((_num_experts(layer) for layer in network.base_model.layers), default=0),
        key_heads=getattr(text, "num_key_value_heads", None) or text.num_attention_heads,
    )


def _layer(layer: Any, config: Any) -> LayerParts:
    numbers = layer_numbers(layer)
    shared = any("shared_expert" in name for name, _ in layer.named_parameters())
    collectives = 2 if shared or not numbers.experts else 1
    return LayerParts(**asdict(numbers), keys=_keys(config), collectives=collectives)


def _keys(config: Any) -> int:
    """Keys and values of one token, of all heads; latent attention puts them together before they are sent."""
    heads = config.num_attention_heads
    if getattr(config, "kv_lora_rank", None):
        return int(heads * (config.qk_head_dim + config.v_head_dim))
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * head * (getattr(config, "num_key_value_heads", None) or heads))


def _num_experts(layer: Any) -> int:
    """Experts of a layer: the first dimension of their fused matrices."""
    return next((p.shape[0] for name, p in layer.named_parameters() if ".experts." in name and p.ndim == 3), 0)
