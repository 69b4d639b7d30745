"""Gradients of a step's whole objective, and samples whose probability ratios stay away from every bound.

At a bound a gradient jumps, so rounding alone may put a token on either side of it. Here a token's ratio is either
near 1, or so far from it that all bounds in use lie between; so is the mean of each sequence.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from support_model import make_tiny_model
from support_samples import make_rows

from weir.trainer.credit.samples import Sample
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.scoring import score_by
from weir.trainer.settings.config import TrainerConfig

FRESH_VERSION = 2
CPU = torch.device("cpu")


def whole_gradient(
    folder: Path, reference: Path, config: TrainerConfig, samples: list[Sample], ranks: Ranks = Ranks()
) -> dict[str, torch.Tensor]:
    """The gradient of one optimiser step by all parameters of the policy, and of the critic where there is one."""
    learner = Learner(folder, config, reference=reference, ranks=ranks)
    learner.score(samples)
    learner.accumulate(samples, fresh_version=FRESH_VERSION)
    learner.accumulate_critic(samples)
    if config.sft_files:
        learner.accumulate_mixed(make_rows([5, 3, 9]))
    modules = {"policy": learner.model} | ({} if learner.critic is None else {"critic": learner.critic.model})
    return {name: flat_gradient(module) for name, module in modules.items()}


def flat_gradient(module: torch.nn.Module) -> torch.Tensor:
    """The gradient by all parameters in one row, also where it is spread over ranks."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    whole = [gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient for gradient in gradients]
    return torch.cat([gradient.flatten() for gradient in whole]).float().cpu()


def make_models(folder: Path) -> tuple[Path, Path]:
    """A tiny model whose weights are about as wide as a real one's, and a reference model near it."""
    drawn, folders = torch.Generator().manual_seed(7), (folder / "policy", folder / "reference")
    for target, noise in zip(folders, (0.0, 0.01), strict=True):
        make_tiny_model(target, vocab_size=512, seed=0)
        weights = load_file(target / "model.safetensors")
        weights = {name: w / 4 if w.ndim == 2 else w for name, w in weights.items()}
        weights = {name: w + noise * torch.randn(w.shape, generator=drawn) for name, w in weights.items()}
        save_file(weights, target / "model.safetensors", {"format": "pt"})
    return folders


def drifted_samples(folder: Path, config: TrainerConfig, seed: int) -> list[Sample]:
    """One to three groups, each of a prompt with one to four answers, some of them gone on with for a turn or two.

    Each sequence has drifted by -0.9, 0 or 0.9 nats a token from what was recorded, each token by up to 0.07 more.
    """
    random = np.random.default_rng(seed)
    samples: list[Sample] = []
    for group in range(int(random.integers(1, 4))):
        prompt = random.integers(10, 200, int(random.integers(1, 30)))
        for _ in range(int(random.integers(1, 5))):
            before, follows = prompt, None
            for _ in range(int(random.integers(1, 4))):
                sample = _draw(random, f"c{len(samples)}", f"g{group}", before, follows)
                samples.append(sample)
                before, follows = np.concatenate([sample.ids, random.integers(10, 200, 3)]), sample.call_id
    logprobs = score_by(folder, samples, config, CPU, Ranks())
    drifts = {sample.call_id: _drift(random, len(sample.output_ids)) for sample in samples}
    return [
        replace(sample, old_logprobs=(logprobs[sample.call_id] - drifts[sample.call_id]).astype(np.float32))
        for sample in samples
    ]


def _draw(random: np.random.Generator, call_id: str, group_id: str, before: np.ndarray, follows: str | None) -> Sample:
    output = random.integers(10, 200, int(random.integers(1, 12)))
    return Sample(
        call_id=call_id,
        group_id=group_id,
        prompt_ids=before.astype(np.int32),
        output_ids=output.astype(np.int32),
        old_logprobs=np.zeros(len(output), np.float32),
        versions=random.integers(0, FRESH_VERSION + 1, len(output)).astype(np.int32),
        temperature=float(random.choice([0.7, 1.0])),
        advantage=float(random.standard_normal()),
        reward=float(random.random()),
        follows=follows,
    )


def _drift(random: np.random.Generator, length: int) -> np.ndarray:
    """(N,) whose mean is one of three values."""
    pairs = random.uniform(0, 0.07, length // 2)
    around = np.concatenate([pairs, -pairs, np.zeros(length % 2)])
    drift: np.ndarray = random.choice([-0.9, 0.0, 0.9]) + random.permutation(around)
    return drift
