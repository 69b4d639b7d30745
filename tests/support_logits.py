"""What transformers' own forward pass says of sampled tokens."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM


def reference_logits(folder: Path, prompt: list[int], output: list[int]) -> torch.Tensor:
    """(len(output), vocabulary): transformers' logits at the places where the output tokens were drawn."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]


def reference_pass(folder: Path, ids: list[int]) -> tuple[torch.Tensor, np.ndarray]:
    """transformers' logits behind all tokens of a mixture but the last, (tokens, vocabulary), and in the same pass what
    its routers choose for them, (tokens, layers, chosen): zeros in first layers without experts, as SGLang gives."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    layers = model.model.layers
    found = np.zeros((len(ids) - 1, len(layers), model.config.num_experts_per_tok), np.int64)

    def chose(at: int, output: tuple[torch.Tensor, ...]) -> None:
        found[:, at] = output[2].numpy()

    for at, layer in enumerate(layers):
        if hasattr(layer.mlp, "gate"):
            layer.mlp.gate.register_forward_hook(lambda _, __, output, at=at: chose(at, output))
    with torch.inference_mode():
        logits = model(torch.tensor([ids[:-1]])).logits[0]
    return logits, found


def reference_routes(folder: Path, ids: list[int]) -> np.ndarray:
    """What transformers' routers choose for all tokens but the last, (tokens, layers, chosen)."""
    return reference_pass(folder, ids)[1]


def chosen(logits: torch.Tensor, output: list[int]) -> torch.Tensor:
    return logits.log_softmax(-1).gather(1, torch.tensor(output)[:, None])[:, 0]


def kept_logprobs(
    logits: torch.Tensor, output: list[int], *, top_k: int = 1 << 30, top_p: float = 1.0, min_p: float = 0.0
) -> list[float]:
    """Logprobs of the output tokens among those that truncation keeps, by a plain loop over the sorted vocabulary."""
    found = []
    for row, token in zip(logits.softmax(-1).tolist(), output, strict=True):
        order = sorted(range(len(row)), key=lambda one: -row[one])
        kept, mass = [], 0.0
        for rank, one in enumerate(order):
            if rank < top_k and mass <= top_p and row[one] >= min_p * row[order[0]]:
                kept.append(one)
            mass += row[one]
        assert token in kept
        found.append(math.log(row[token] / math.fsum(row[one] for one in kept)))
    return found
