"""A random Qwen3, of about two million parameters unless a width is given: the model of the benchmarks that compute."""

from __future__ import annotations

from pathlib import Path

VOCABULARY = 2048
MAX_POSITIONS = 2048


def write_random_model(
    folder: Path,
    *,
    seed: int = 0,
    width: int = 192,
    layers: int = 4,
    dtype: str = "float32",
    vocabulary: int = VOCABULARY,
) -> None:
    """Write the model as a Hugging Face folder, without a tokenizer; the same weights for the same arguments."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=width * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=width // 4,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
