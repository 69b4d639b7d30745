"""The models and samples of `weir bench scale`.

Invariant: the seed determines every byte. All samples are equally long and micro-batches equally full, so that what is
compared is the division of the work and not its balance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from weir.scripts.bench.random_samples import random_ids, random_sample
from weir.trainer.credit.samples import Sample

MODELS = ("smollm2", "moe", "tiny")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One optimiser step: `num_samples` samples of `length` tokens, in micro-batches of `budget` tokens."""

    num_samples: int = 8
    length: int = 256
    budget: int = 512

    @property
    def tokens(self) -> int:
        """Tokens of a step, prompts included."""
        return self.num_samples * self.length


def write_model(name: str, folder: Path) -> None:
    """Write a random model in float32: SmolLM2-135M's form, a mixture of experts of four layers, or a tiny one."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    network: Any
    heads: dict[str, Any]
    if name == "moe":
        heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64}
        experts: dict[str, Any] = {
            "num_experts": 16,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 384,
            "norm_topk_prob": True,
        }
        config = Qwen3MoeConfig(vocab_size=8192, hidden_size=512, num_hidden_layers=4, **heads, **experts)
        network = Qwen3MoeForCausalLM(config)
    else:
        sizes: dict[str, Any] = {
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
        }
        heads = {"num_attention_heads": 9, "num_key_value_heads": 3}
        if name == "tiny":
            sizes = {"vocab_size": 2048, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6}
            heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        network = LlamaForCausalLM(LlamaConfig(**sizes, **heads, tie_word_embeddings=True))
    network.save_pretrained(folder)


def with_experts(folder: Path, samples: Sequence[Sample]) -> list[Sample]:
    """The samples with the experts that a Qwen3-MoE's or DeepSeek-V3's own routers choose for their tokens."""
    import torch
    from transformers import AutoModelForCausalLM

    network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    chosen: dict[int, Any] = {}
    for number, layer in enumerate(network.base_model.layers):
        if hasattr(layer.mlp, "gate"):
            layer.mlp.gate.register_forward_hook(lambda _, __, output, at=number: chosen.update({at: output[2]}))
    found, layers, width = [], len(network.base_model.layers), network.config.num_experts_per_tok
    for sample in samples:
        with torch.inference_mode():
            network.base_model(torch.from_numpy(sample.ids[None, :-1].astype(np.int64)))
        experts = np.zeros((len(sample.ids) - 1, layers, width), np.uint16)
        for at, own in chosen.items():
            experts[:, at] = own.numpy()
        found.append(replace(sample, routed_experts=experts.reshape(len(experts), -1)))
    return found


def samples_of(work: Work, vocabulary: int, seed: int = 0) -> list[Sample]:
    """Samples without common prefixes, half prompt and half answer."""
    random = np.random.default_rng(seed)
    return [_sample(index, work.length, vocabulary, random) for index in range(work.num_samples)]


def _sample(index: int, length: int, vocabulary: int, random: np.random.Generator) -> Sample:
    ids = random_ids(random, length, vocabulary)
    prompt = length // 2
    return random_sample(index, ids[:prompt], ids[prompt:], random, vocabulary, of_group=4)
