"""What transformers' own forward pass says of sampled tokens."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def reference_logits(folder: Path, prompt: list[int], output: list[int]) -> torch.Tensor:
    """(len(output), vocabulary): transformers' logits at the places where the output tokens were drawn."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]


def chosen(logits: torch.Tensor, output: list[int]) -> torch.Tensor:
    return logits.log_softmax(-1).gather(1, torch.tensor(output)[:, None])[:, 0]
