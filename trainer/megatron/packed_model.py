"""Megatron-core's GPTModel for packed rows: it returns the last hidden states; the head is ours (`vocab_logprobs.py`).

Invariant: built from the architecture alone; weights are filled from the files before anything is computed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig

from weir.trainer.megatron.architecture import Architecture, Experts
from weir.trainer.megatron.eight_bit_products import in_eight_bits
from weir.trainer.megatron.latent_attention import LatentAttention
from weir.trainer.megatron.packed_attention import Norm, PackedAttention, RowParams
from weir.trainer.megatron.packed_row import PackedRow
from weir.trainer.settings.megatron import MegatronSettings

if not hasattr(moe_utils, "te_general_gemm"):  # Megatron-core 0.16 names it only where Transformer Engine is installed
    moe_utils.te_general_gemm = None


class PackedModel(GPTModel):  # type: ignore[misc]
    """One pipeline stage of a model."""

    def _postprocess(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        if not self.post_process:
            return hidden_states
        if self.config.sequence_parallel:
            gathered: torch.Tensor = gather_from_sequence_parallel_region(hidden_states)
            return gathered.flatten(0, 1)
        copied: torch.Tensor = copy_to_tensor_model_parallel_region(hidden_states)
        return copied.flatten(0, 1)

    @property
    def head(self) -> torch.Tensor:
        """This rank's rows of the head, on the last stage."""
        tied = self.share_embeddings_and_output_weights
        weight: torch.Tensor = self.shared_embedding_or_output_weight() if tied else self.output_layer.weight
        return weight


class PackedCritic(PackedModel):
    """One pipeline stage of a model with a scalar value head, which tensor ranks hold whole and compute alike."""

    def _postprocess(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        if self.post_process and self.config.sequence_parallel:
            hidden_states = gather_from_sequence_parallel_region(hidden_states, tensor_parallel_output_grad=False)
        return hidden_states.flatten(0, 1) if self.post_process else hidden_states


class PackedChunks(torch.nn.ModuleList):
    """A rank's parts of a model, from its first layers to its last: one stage, or several where stages are interleaved.

    Names of parameters begin with the number of their part.
    """

    @property
    def config(self) -> TransformerConfig:
        """Megatron-core's configuration, which is that of all parts."""
        return self[0].config

    @property
    def last(self) -> PackedModel:
        """The part with the last layers, which on the last stage has the head."""
        return self[-1]  # type: ignore[return-value]


def compute(module: Any, row: PackedRow) -> torch.Tensor:
    """What a stage makes of a row: on the last, the states (t, H) of this rank's tokens; else the next one's input.

    `module` is the model, or what wraps it.
    """
    found: torch.Tensor = module(
        input_ids=row.ids,
        position_ids=row.ids,  # not looked at: rotary embeddings count along the sequences of the row
        attention_mask=None,
        packed_seq_params=RowParams.of(row),
    )
    return found


def padded_vocabulary(vocabulary: int, tensor: int) -> int:
    """The vocabulary with rows of padding, so that the tensor ranks hold equally many."""
    return -(-vocabulary // tensor) * tensor


def empty_model(
    model: Architecture,
    layout: MegatronSettings,
    *,
    precision: str = "float32",
    recompute: bool = False,
    critic: bool = False,
    replay: bool = False,
) -> PackedChunks:
    """This rank's part of a model, with weights that are still to be filled; groups have been joined."""
    config = transformer_config(model, layout, precision=precision, recompute=recompute)
    config.moe_enable_routing_replay = replay
    return PackedChunks([_chunk(model, layout, config, at, critic=critic) for at in range(layout.chunks)])


def first_layers(model: Architecture, layout: MegatronSettings) -> tuple[int, ...]:
    """The first layer, counted from the model's first, of each part of this rank's stage; groups have been joined."""
    stage, layers = parallel_state.get_pipeline_model_parallel_rank(), _part_layers(model, layout)
    return tuple((part * layout.pipeline + stage) * layers for part in range(layout.chunks))


def _part_layers(model: Architecture, layout: MegatronSettings) -> int:
    return model.layers // (layout.pipeline * layout.chunks)


def _layer(model: Architecture, layout: MegatronSettings, number: int) -> ModuleSpec:
    """A layer, counted from the model's first."""
    experts = model.experts if model.has_experts(number) else None
    spec = get_gpt_layer_local_spec(
        qk_layernorm=model.qk_norm,
        normalization="RMSNorm",
        num_experts=None if experts is None else experts.count,
        moe_grouped_gemm=False,
    )
    if layout.fp8 is not None:
        in_eight_bits(spec)
    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = Norm
    if model.latent is not None:
        spec.submodules.self_attention = ModuleSpec(module=LatentAttention, params={"model": model})
        return spec
    attention = spec.submodules.self_attention.submodules
    attention.core_attention = PackedAttention
    if model.qk_norm:
        attention.q_layernorm = attention.k_layernorm = Norm
    return spec


def _chunk(
    model: Architecture, layout: MegatronSettings, config: TransformerConfig, at: int, *, critic: bool
) -> PackedModel:
    """One part of a rank's layers."""
    first = first_layers(model, layout)[at]
    own = [_layer(model, layout, number) for number in range(first, first + _part_layers(model, layout))]
    network = (PackedCritic if critic else PackedModel)(
        config,
        TransformerBlockSubmodules(layer_specs=own, layer_norm=Norm),
        vocab_size=padded_vocabulary(model.vocabulary, layout.tensor),
        max_sequence_length=model.context,
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=at),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=at),
        position_embedding_type="rope" if model.latent is None else "none",  # which attend with positions of their own
        rotary_base=model.rotary_base,
        share_embeddings_and_output_weights=model.tied and not critic,
        vp_stage=at if layout.chunks > 1 else None,
    )
    if critic and network.post_process:
        del network.output_layer
        network.value_head = torch.nn.Linear(model.hidden, 1, dtype=config.params_dtype)
    for name, parameter in network.named_parameters():
        if is_divided(name):  # the gradient's norm counts these on every rank, and others on the first
            parameter.tensor_model_parallel = True
        if ".experts." in name:  # summed over the ranks that share them, also where expert = 1 and tensor is more
            parameter.allreduce = False
    return network


def is_divided(name: str) -> bool:
    """Whether tensor ranks hold different numbers of a parameter."""
    return "embeddings" in name or "output_layer" in name or ".linear_" in name


def transformer_config(
    model: Architecture, layout: MegatronSettings, *, precision: str, recompute: bool
) -> TransformerConfig:
    """Megatron-core's configuration of a model."""
    dtype = getattr(torch, precision)
    more = {} if model.experts is None else _of_experts(model.experts)
    if layout.fp8 is not None:
        more |= {"fp8": "e4m3" if layout.fp8 in ("blockwise", "mxfp8") else "hybrid", "fp8_recipe": layout.fp8}
    if recompute:
        more |= {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    return TransformerConfig(
        num_layers=model.layers,
        hidden_size=model.hidden,
        ffn_hidden_size=model.inner,
        num_attention_heads=model.heads,
        num_query_groups=model.key_heads,
        kv_channels=model.head,
        normalization="RMSNorm",
        qk_layernorm=model.qk_norm,
        layernorm_epsilon=model.norm_eps,
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        add_qkv_bias=model.qkv_bias,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        perform_initialization=False,
        tensor_model_parallel_size=layout.tensor,
        sequence_parallel=layout.sequence and layout.tensor > 1,
        pipeline_model_parallel_size=layout.pipeline,
        virtual_pipeline_model_parallel_size=layout.chunks if layout.chunks > 1 else None,
        context_parallel_size=layout.context,
        expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor,
        pipeline_dtype=dtype,
        params_dtype=dtype,
        bf16=dtype is torch.bfloat16,
        bias_activation_fusion=layout.fused_activations,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
        batch_p2p_comm=False,
        calculate_per_token_loss=True,  # sums over ranks are not divided: weights of tokens are known before
        variable_seq_lengths=True,
        moe_token_dispatcher_type="alltoall",  # rows differ in length, which the default refuses
        **more,
    )


def _of_experts(experts: Experts) -> dict[str, Any]:
    found: dict[str, Any] = {
        "num_moe_experts": experts.count,
        "moe_router_topk": experts.chosen,
        "moe_ffn_hidden_size": experts.inner,
        "moe_router_load_balancing_type": "none",
        "moe_router_pre_softmax": not experts.normalised,
        "moe_router_dtype": "fp32",
    }
    if experts.shared:
        found["moe_shared_expert_intermediate_size"] = experts.shared
    if experts.biased:
        found |= {
            "moe_router_score_function": "sigmoid",
            "moe_router_enable_expert_bias": True,
            "moe_router_bias_update_rate": 0.0,  # it stays as the folder has it
            "moe_router_topk_scaling_factor": experts.scale,
        }
    if experts.groups > 1:
        found |= {"moe_router_num_groups": experts.groups, "moe_router_group_topk": experts.chosen_groups}
    return found
