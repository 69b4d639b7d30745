"""Mixtures whose routers are torn between experts: four have the same row, of which a little noise chooses two; and
rounds over the calls of one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from support_logits import reference_pass
from support_megatron_models import make_latent
from support_model import make_tiny_model
from transformers import AutoConfig

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import RewardRow
from weir.store.config import StoreConfig
from weir.store.records.call_record import Experts
from weir.trainer.credit.samples import Sample
from weir.trainer.model.routing_replay import RoutedShape
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer

NOISE = 2e-7  # of a router's weights: it decides between equals, and changes no share by more than rounding does
SESSIONS = ("one", "two")  # of a group


def make_torn(folder: Path, *, noise_seed: int | None = None, family: str = "qwen3_moe", tied: bool = True) -> Path:
    """A tiny mixture with equal rows in its routers; with `noise_seed` they differ, as by an engine's rounding.

    DeepSeek-V3's form has them in every group of experts, so that noise decides between groups.
    """
    if family == "qwen3_moe":
        make_tiny_model(folder, family="qwen3_moe", tied=tied)
    else:
        make_latent(folder)
    weights = load_file(folder / "model.safetensors")
    random = torch.Generator().manual_seed(noise_seed or 0)
    for name, rows in weights.items():
        if name.endswith("mlp.gate.weight"):
            torn = rows[: len(rows) // 4].repeat(4, 1)
            noise = torch.randn(torn.shape, generator=random) * NOISE
            weights[name] = torn if noise_seed is None else torn + noise
        if name.endswith("e_score_correction_bias"):
            weights[name] = rows[: len(rows) // 4].repeat(4)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def routed_by(folder: Path, sample: Sample) -> Sample:
    """The sample with the experts and logprobs of one pass of a model."""
    logits, found = reference_pass(folder, sample.ids.tolist())
    experts: Experts = found.reshape(len(found), -1).astype(np.uint8)
    at = (logits[len(sample.prompt_ids) - 1 :] / sample.temperature).log_softmax(-1)
    logprobs = at.gather(1, torch.from_numpy(sample.output_ids.astype(np.int64))[:, None])[:, 0].numpy()
    return replace(sample, routed_experts=experts, old_logprobs=logprobs)


def routed_by_chance(folder: Path, samples: list[Sample], seed: int = 0) -> list[Sample]:
    """The samples with experts that no router of the model would choose; 0 in layers without experts, as of SGLang."""
    shape = RoutedShape.of(AutoConfig.from_pretrained(folder))
    random = np.random.default_rng(seed)
    found = []
    for sample in samples:
        drawn = random.random((len(sample.ids) - 1, shape.layers, shape.experts))
        experts = np.argsort(drawn)[..., : shape.chosen].astype(np.uint8)
        experts[:, : shape.dense] = 0
        found.append(replace(sample, routed_experts=experts.reshape(len(experts), -1)))
    return found


def add_sessions(store: StoreConfig) -> None:
    """Register the sessions of a new store."""
    catalog = Catalog.open(store)
    for name in SESSIONS:
        catalog.register_session(name, "g", task={}, group_size=2, metadata={}, key_hash=None)
    catalog.close()


def add_rewards(store: StoreConfig) -> None:
    """End the sessions, one with a reward of 0 and one of 1."""
    catalog = Catalog.open(store)
    for number, name in enumerate(SESSIONS):
        reward = RewardRow(
            session_id=name, call_id=None, name="told", value=float(number), source="test", idempotency_key=name
        )
        catalog.add_rewards([reward])
        catalog.finish_session(name, status="done", info={})
    catalog.close()


def metrics_of_round(root: Path, model: Path, **more: Any) -> dict[str, Any]:
    """A round over a copy of the store."""
    copied = shutil.copytree(root, root.with_name(f"{root.name}-{len(list(root.parent.iterdir()))}"))
    config = TrainerConfig(
        groups_per_round=1,
        optimizer_steps=1,
        train_truncated=True,
        tensorboard=False,
        device="cpu",
        rewards={"told": {"stored": True}},
        **more,
    )
    trainer = Trainer(config, StoreConfig(root=copied), model_path=model)
    try:
        report = trainer.run_round()
    finally:
        trainer.close()
    assert report is not None
    return dict(report.metrics)
