"""Mixtures whose routers are torn between experts: four have the same row, of which a little noise chooses two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from support_logits import reference_pass
from support_model import make_tiny_model

from weir.store.records.call_record import Experts
from weir.trainer.credit.samples import Sample

NOISE = 2e-7  # of a router's weights: it decides between equals, and changes no share by more than rounding does


def make_torn(folder: Path, *, noise_seed: int | None = None) -> Path:
    """A tiny mixture with equal rows in its routers; with `noise_seed` they differ, as by an engine's rounding."""
    make_tiny_model(folder, family="qwen3_moe")
    weights = load_file(folder / "model.safetensors")
    random = torch.Generator().manual_seed(noise_seed or 0)
    for name, rows in weights.items():
        if name.endswith("mlp.gate.weight"):
            torn = rows[::4].repeat_interleave(4, 0)
            noise = torch.randn(torn.shape, generator=random) * NOISE
            weights[name] = torn if noise_seed is None else torn + noise
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def routed_by(folder: Path, sample: Sample) -> Sample:
    """The sample with the experts and logprobs of one pass of a model."""
    logits, found = reference_pass(folder, sample.ids.tolist())
    experts: Experts = found.reshape(len(found), -1).astype(np.uint8)
    at = (logits[len(sample.prompt_ids) - 1 :] / sample.temperature).log_softmax(-1)
    logprobs = at.gather(1, torch.from_numpy(sample.output_ids.astype(np.int64))[:, None])[:, 0].numpy()
    return replace(sample, routed_experts=experts, old_logprobs=logprobs)


def routed_by_chance(samples: list[Sample], seed: int = 0) -> list[Sample]:
    """The samples with experts that no router would choose: two of four in each of two layers."""
    random = np.random.default_rng(seed)
    lengths = [len(sample.ids) - 1 for sample in samples]
    drawn = [np.argsort(random.random((length, 2, 4)))[..., :2].reshape(length, 4) for length in lengths]
    return [replace(s, routed_experts=own.astype(np.uint8)) for s, own in zip(samples, drawn, strict=True)]
