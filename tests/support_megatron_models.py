"""Tiny models that Megatron-core divides: their vocabulary has rows that two tensor ranks cannot share evenly."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

VOCABULARY = 517


def make_moe(folder: Path) -> Path:
    """A tiny mixture of experts."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "norm_topk_prob": True}
    torch.manual_seed(0)
    config = Qwen3MoeConfig(vocab_size=VOCABULARY, num_experts=4, num_experts_per_tok=2, **sizes, **heads)
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
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
