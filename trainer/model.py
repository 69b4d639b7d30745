"""The model that is trained: loading a Hugging Face folder, logprobs of targets, writing the folder again.

Invariant: weights are float32 in memory of their own, so that a model kept between rounds and one loaded from disk
step to the same bits. Logits are computed for targets only: prompts cost attention, not vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from weir.trainer.batching import Batch, Layout
from weir.trainer.errors import TrainerUsageError
from weir.trainer.segment_attention import ATTENTION, can_pack
from weir.trainer.token_logprobs import token_logprobs
from weir.trainer.versions import copy_tokenizer

STATE_FILE = "trainer_state.pt"
# Settings of a model that change its logits behind the head, which the head here does not compute.
_LOGIT_SETTINGS = ("final_logit_softcapping", "logits_scaling", "logit_scale")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLogprobs:
    """What the model says of the N targets of a batch."""

    logprobs: torch.Tensor  # (N,) float32, with gradient
    entropy: torch.Tensor  # (N,) float32, in nats, with gradient


class TokenModel(torch.nn.Module):
    """A causal language model that is asked for the logprobs of targets."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.packs = can_pack(network)
        if self.packs:
            network.set_attn_implementation(ATTENTION)

    def layout(self, *, share_prefixes: bool = True) -> Layout:
        """How its batches are laid out."""
        if not self.packs:
            return Layout.PADDED
        return Layout.TREE if share_prefixes else Layout.PACKED

    def forward(self, batch: Batch, temperatures: torch.Tensor | None = None) -> TargetLogprobs:
        """Logprobs of the batch's targets under softmax(logits / temperature), and the entropies of the same.

        `temperatures` has shape (N,); None means 1.
        """
        segments = {} if batch.segments is None else {"segments": batch.segments}
        base = self.network.base_model
        hidden = base(input_ids=batch.ids, position_ids=batch.positions, use_cache=False, **segments).last_hidden_state
        predicting = hidden.flatten(0, 1)[batch.predictors]  # (N, H)
        head = self.network.get_output_embeddings().weight
        logprobs, entropy = token_logprobs(predicting, head, batch.targets, temperatures)
        return TargetLogprobs(logprobs=logprobs, entropy=entropy)


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def load_model(folder: Path, device: torch.device) -> TokenModel:
    """A causal language model in float32. Raises `TrainerUsageError` when the folder does not hold one."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError) as error:
        raise TrainerUsageError(f"{folder} is not a Hugging Face model folder that loads: {error}") from error
    _check_head(network, folder)
    for parameter in network.parameters():
        parameter.data = parameter.data.clone()  # memory-mapped weights are aligned otherwise, and round otherwise
    return TokenModel(network.to(device).train())


def _check_head(network: Any, folder: Path) -> None:
    settings = network.config.get_text_config()
    changed = [name for name in _LOGIT_SETTINGS if getattr(settings, name, None) not in (None, 1.0)]
    if network.get_output_embeddings().bias is not None:
        changed.append("bias of the head")
    if changed:
        raise TrainerUsageError(
            f"{folder}: logprobs of this model family are not computed ({', '.join(changed)}); train a model whose "
            "logits are its head's, such as Qwen or Llama"
        )


def save_model(model: TokenModel, target: Path, *, tokenizer_from: Path) -> None:
    """Write safetensors, configuration and the tokenizer's files into an existing folder."""
    model.network.save_pretrained(target)
    copy_tokenizer(tokenizer_from, target)
