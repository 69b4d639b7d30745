"""The model that is trained: loading a Hugging Face folder, logprobs of targets, writing the folder again.

Invariant: weights are float32 in memory of their own, so that a model kept between rounds and one loaded from disk
step to the same bits. Logits are computed for targets only: prompts cost attention, not vocabulary.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from weir.trainer.batching import PaddedBatch
from weir.trainer.errors import TrainerUsageError
from weir.trainer.versions import copy_tokenizer

STATE_FILE = "trainer_state.pt"


class EntropyUse(enum.Enum):
    """What the entropy of the targets' distributions is wanted for."""

    UNUSED = "unused"  # zeros are told
    TOLD = "told"  # without gradient
    TRAINED = "trained"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLogprobs:
    """What the model says of the N targets of a batch, in row-major order."""

    logprobs: torch.Tensor  # (N,) float32, with gradient
    entropy: torch.Tensor  # (N,) float32, in nats


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def load_model(folder: Path, device: torch.device) -> torch.nn.Module:
    """A causal language model in float32. Raises `TrainerUsageError` when the folder does not hold one."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise TrainerUsageError(f"{folder} is not a Hugging Face model folder that loads: {error}") from error
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()  # memory-mapped weights are aligned otherwise, and round otherwise
    return model.to(device).train()


def save_model(model: Any, target: Path, *, tokenizer_from: Path) -> None:
    """Write safetensors, configuration and the tokenizer's files into an existing folder."""
    model.save_pretrained(target)
    copy_tokenizer(tokenizer_from, target)


def target_logprobs(
    model: Any,
    batch: PaddedBatch,
    temperatures: torch.Tensor | None = None,
    *,
    entropy: EntropyUse = EntropyUse.UNUSED,
) -> TargetLogprobs:
    """Logprobs of the batch's targets under softmax(logits / temperature).

    `temperatures` has shape (B,); None means 1. The entropy is that of the same distribution.
    """
    hidden = model.base_model(input_ids=batch.ids, use_cache=False).last_hidden_state  # (B, T, H)
    predicts = batch.targets[:, 1:]  # position t - 1 predicts token t
    logits = model.get_output_embeddings()(hidden[:, :-1][predicts]).float()  # (N, V)
    if temperatures is not None:
        logits = logits / temperatures[:, None].expand_as(predicts)[predicts][:, None]
    all_logprobs = torch.log_softmax(logits, dim=-1)
    logprobs = all_logprobs.gather(1, batch.ids[:, 1:][predicts][:, None]).squeeze(1)
    return TargetLogprobs(logprobs=logprobs, entropy=_entropy(all_logprobs, entropy))


def _entropy(all_logprobs: torch.Tensor, use: EntropyUse) -> torch.Tensor:
    """(N, V) to (N,)."""
    if use is EntropyUse.UNUSED:
        return torch.zeros_like(all_logprobs[:, 0])
    with torch.set_grad_enabled(use is EntropyUse.TRAINED):
        return -(all_logprobs.exp() * all_logprobs).sum(-1)
