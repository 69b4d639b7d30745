"""Tiny models that Megatron-core divides: their vocabulary has rows that two tensor ranks cannot share evenly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

VOCABULARY = 517


def make_moe(folder: Path, **more: Any) -> Path:
    """A tiny mixture of experts."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "norm_topk_prob": True}
    torch.manual_seed(0)
    config = Qwen3MoeConfig(vocab_size=VOCABULARY, num_experts=4, num_experts_per_tok=2, **(sizes | heads | more))
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    return folder


def make_latent(folder: Path, *, narrow_queries: bool = True) -> Path:
    """A tiny model of DeepSeek-V3's form: one layer without experts, three with groups of them, YaRN's positions."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 4}
    ranks = {"q_lora_rank": 24 if narrow_queries else None, "kv_lora_rank": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8}
    experts = {"n_routed_experts": 8, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2, "n_shared_experts": 1}
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.8}
    torch.manual_seed(0)
    config = DeepseekV3Config(
        vocab_size=VOCABULARY,
        v_head_dim=12,
        first_k_dense_replace=1,
        max_position_embeddings=256,
        rope_parameters=yarn | {"original_max_position_embeddings": 64},
        **sizes,
        **ranks,
        **heads,
        **experts,
    )
    network = DeepseekV3ForCausalLM(config)
    for layer in network.model.layers[1:]:
        torch.nn.init.normal_(layer.mlp.gate.weight, std=0.1)
        torch.nn.init.normal_(layer.mlp.gate.e_score_correction_bias, std=0.05)
    network.save_pretrained(folder)
    return folder


def make_dense(folder: Path) -> Path:
    """A tiny model of four layers with tied embeddings whose four key heads four tensor ranks can share."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16}
    torch.manual_seed(0)
    Qwen3ForCausalLM(Qwen3Config(vocab_size=VOCABULARY, tie_word_embeddings=True, **sizes, **heads)).save_pretrained(
        folder
    )
    return folder
