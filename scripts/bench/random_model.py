"""A random Qwen3 of about two million parameters: the model of the benchmarks that compute."""

from __future__ import annotations

from pathlib import Path

VOCABULARY = 2048
MAX_POSITIONS = 2048


def write_random_model(folder: Path) -> None:
    """Write the model as a Hugging Face folder, without a tokenizer; the same weights every time."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=48,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
