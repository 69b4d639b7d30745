"""Which Hugging Face models are built with Megatron-core, and their form: families, sizes, rotary embeddings.

Invariant: what is read from a folder's config.json and is not named here is the family's default; everything that
would change a logprob and is not built is refused by name. This module imports no Megatron-core.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from transformers import AutoConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

from weir.trainer.errors import TrainerUsageError
from weir.trainer.model.token_model import check_losses
from weir.trainer.settings.megatron import MegatronSettings

FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_moe", "deepseek_v3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The experts of each layer, and how tokens choose among them."""

    count: int
    chosen: int  # of each token
    inner: int
    normalised: bool  # whether the chosen experts' shares add up to 1
    dense_layers: int = 0  # first layers, which have a feed-forward block in place of experts
    shared: int = 0  # width of the block that every token goes through besides
    biased: bool = False  # shares are sigmoids, and a bias of each expert, which is not trained, helps to choose
    groups: int = 1  # of experts, of which a token chooses `chosen_groups` by their two best experts
    chosen_groups: int = 1
    scale: float = 1.0  # of the shares
    balance: float = field(default=0.0, compare=False)  # coefficient of the load-balancing loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (arXiv 2405.04434, section 2.1): queries, keys and values from narrow states."""

    query_rank: int | None  # None: queries are computed from the whole states
    key_rank: int  # of keys and values
    plain: int  # width of a head's queries and keys without position
    value: int  # width of a head's values
    frequencies: tuple[float, ...]  # of the rotary embeddings, radians a token; twice as many numbers are turned
    rotary_scale: float  # of the turned numbers (YaRN, arXiv 2309.00071)
    score_scale: float  # of the products of queries and keys

    @property
    def rotary(self) -> int:
        """Width of a head's queries, and of all heads' keys, with position."""
        return 2 * len(self.frequencies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder with rotary embeddings, RMSNorm and SwiGLU."""

    family: str
    layers: int
    hidden: int
    inner: int
    heads: int
    key_heads: int
    head: int  # width
    vocabulary: int
    context: int
    norm_eps: float
    rotary_base: float
    tied: bool
    qkv_bias: bool
    qk_norm: bool
    experts: Experts | None
    latent: Latent | None = None

    def has_experts(self, layer: int) -> bool:
        """Whether a layer, counted from the model's first, has experts."""
        return self.experts is not None and layer >= self.experts.dense_layers

    @property
    def attended(self) -> int:
        """Width of what all heads of a layer give."""
        return self.heads * (self.head if self.latent is None else self.latent.value)


def read_architecture(folder: Path) -> Architecture:
    """The architecture of a folder. Raises `TrainerUsageError` for one that is not built."""
    try:
        config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise TrainerUsageError(f"{folder} is not a Hugging Face model folder that loads: {error}") from error
    if config.model_type not in FAMILIES:
        raise TrainerUsageError(
            f"{folder}: Megatron-core is used for the families {', '.join(FAMILIES)}, and this is {config.model_type}; "
            "use backend = torch"
        )
    check_losses(config, folder)
    if others := list(_unsupported(config)):
        raise TrainerUsageError(
            f"{folder}: its Megatron form does not build {', '.join(others)} (config.json); use backend = torch"
        )
    return Architecture(
        family=config.model_type,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        inner=config.intermediate_size,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head=_head(config),
        vocabulary=config.vocab_size,
        context=config.max_position_embeddings,
        norm_eps=config.rms_norm_eps,
        rotary_base=float(config.rope_parameters["rope_theta"]),
        tied=config.tie_word_embeddings,
        qkv_bias=config.model_type == "qwen2",
        qk_norm=config.model_type.startswith("qwen3"),
        experts=_experts(config),
        latent=_latent(config) if config.model_type == "deepseek_v3" else None,
    )


def _head(config: Any) -> int:
    """Width of a head's queries and keys."""
    latent: int | None = getattr(config, "qk_head_dim", None)  # its head_dim is that of rotary embeddings
    return latent or getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def check_reference(model: Architecture, reference: Path) -> None:
    """Raise `TrainerUsageError` where a reference cannot be computed with the model's own layers."""
    other = read_architecture(reference)
    differing = [name.name for name in fields(model) if getattr(model, name.name) != getattr(other, name.name)]
    if differing:
        raise TrainerUsageError(
            f"the reference {reference} differs from the trained model in {', '.join(differing)}: with Megatron-core "
            "its weights take the trained model's place while it scores; use a reference of the same form, "
            "or backend = torch"
        )


def _unsupported(config: Any) -> Any:
    rope = config.rope_parameters
    if config.model_type == "deepseek_v3":
        yield from _unsupported_of_latent(config)
    elif rope.get("rope_type", "default") != "default":
        yield f"rotary embeddings of type {rope['rope_type']}"
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        yield "partial rotary embeddings"
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
        yield "layers of other attention than full_attention"
    if config.hidden_act != "silu":
        yield f"hidden_act = {config.hidden_act}"
    for name in ("attention_bias", "mlp_bias", "attention_dropout"):
        if getattr(config, name, None):
            yield f"{name} = {getattr(config, name)}"
    if config.model_type == "qwen3_moe" and (config.mlp_only_layers or config.decoder_sparse_step != 1):
        yield "layers without experts between layers with them"


def _unsupported_of_latent(config: Any) -> Any:
    if not config.rope_interleave:
        yield "rope_interleave = false"
    if not config.norm_topk_prob:
        yield "norm_topk_prob = false"
    if config.n_group > 1 and config.num_experts_per_tok != 2 * config.topk_group:  # Megatron-core ranks groups so
        yield f"num_experts_per_tok = {config.num_experts_per_tok} with topk_group = {config.topk_group} (twice that)"


def _experts(config: Any) -> Experts | None:
    if config.model_type == "qwen3_moe":
        return Experts(
            count=config.num_experts,
            chosen=config.num_experts_per_tok,
            inner=config.moe_intermediate_size,
            normalised=config.norm_topk_prob,
            balance=config.router_aux_loss_coef if config.output_router_logits else 0.0,
        )
    if config.model_type == "deepseek_v3":
        return Experts(
            count=config.n_routed_experts,
            chosen=config.num_experts_per_tok,
            inner=config.moe_intermediate_size,
            normalised=True,
            dense_layers=config.first_k_dense_replace,
            shared=config.n_shared_experts * config.moe_intermediate_size,
            biased=True,
            groups=config.n_group,
            chosen_groups=config.topk_group,
            scale=config.routed_scaling_factor,
        )
    return None


def _latent(config: Any) -> Latent:
    """As transformers computes it, frequencies and scales included."""
    embedding = DeepseekV3RotaryEmbedding(config)
    attention = DeepseekV3Attention(config, 0)
    return Latent(
        query_rank=config.q_lora_rank,
        key_rank=config.kv_lora_rank,
        plain=config.qk_nope_head_dim,
        value=config.v_head_dim,
        frequencies=tuple(embedding.inv_freq.tolist()),
        rotary_scale=float(embedding.attention_scaling),
        score_scale=float(attention.scaling),
    )


def check_layout(model: Architecture, layout: MegatronSettings, folder: Path) -> None:
    """Raise `TrainerUsageError` where a layout cannot divide a model."""
    divided = [
        ("tensor", layout.tensor, "key and value heads", model.key_heads),
        ("tensor", layout.tensor, "rows of a feed-forward block", model.inner),
        ("pipeline × chunks", layout.pipeline * layout.chunks, "layers", model.layers),
    ]
    if model.experts is not None:
        divided.append(("expert", layout.expert, "experts", model.experts.count))
        divided.append(("expert_tensor", layout.expert_tensor, "rows of an expert", model.experts.inner))
        divided.append(("tensor", layout.tensor, "rows of the shared experts", model.experts.shared))
        if layout.tensor > 1 and not layout.sequence:
            raise TrainerUsageError(
                f"Megatron-core divides the experts of {folder} by tensor = {layout.tensor} only with sequence = true"
            )
    elif layout.expert * layout.expert_tensor > 1:
        raise TrainerUsageError(f"{folder} has no experts: remove expert and expert_tensor")
    for name, parts, what, count in divided:
        if count % parts:
            raise TrainerUsageError(
                f"{name} = {parts} does not divide the {count} {what} of {folder}; choose a divisor"
            )
