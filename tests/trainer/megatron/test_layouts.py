"""Every layout has the logprobs, losses and gradients of the torch backend, parameter by parameter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support_gradients import drifted_samples
from support_megatron import MegatronJob, MegatronResult, run_jobs
from support_megatron_models import VOCABULARY, make_latent, make_moe
from support_mixture import routed_by_chance
from support_model import make_tiny_model
from support_samples import make_rows

from weir.trainer.credit.behaviour import behaviour_of
from weir.trainer.credit.samples import Sample
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.scoring import score
from weir.trainer.learner.step_stats import TokenStats
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.megatron import MegatronSettings

CPU = torch.device("cpu")
TOLERANCE = 1e-5

# Model, processes, layout and settings: every layout, every algorithm without a critic, every kind of term.
CASES: list[tuple[str, int, dict[str, Any], dict[str, Any]]] = [
    ("qwen3", 2, {"tensor": 2}, {"algorithm": "grpo"}),
    ("qwen3", 2, {"tensor": 2, "sequence": False}, {"algorithm": "dapo", "entropy_coef": 0.01}),
    ("qwen3", 2, {"pipeline": 2}, {"algorithm": "gspo", "clip_low": 0.04, "clip_high": 0.05}),
    ("qwen3", 2, {"context": 2}, {"algorithm": "gmpo", "kl": "k3", "kl_coef": 0.1}),
    ("qwen3", 2, {}, {"algorithm": "cispo", "sft_files": ["a fixed set of rows"], "sft_coef": 0.5}),
    ("qwen2", 2, {"tensor": 2, "fused_activations": True}, {"algorithm": "sapo", "gradient_checkpointing": True}),
    ("llama", 2, {"context": 2}, {"algorithm": "rloo", "loss_mean": "group"}),
    ("untied", 2, {"pipeline": 2}, {"algorithm": "dr_grpo", "loss_constant": 12}),
    (
        "balanced",
        2,
        {"expert": 2},
        {"algorithm": "grpo", "off_policy_delta": 0.4, "sft_files": ["a fixed set of rows"], "sft_coef": 0.5},
    ),
    ("moe", 2, {"tensor": 2, "fused_activations": True}, {"algorithm": "dapo"}),
    ("moe", 2, {"context": 2}, {"algorithm": "reinforce_plus_plus", "kl": "k1", "kl_coef": 0.1, "kl_in": "reward"}),
    ("qwen3", 4, {"tensor": 2, "pipeline": 2}, {"algorithm": "gspo", "clip_low": 0.04, "clip_high": 0.05}),
    (
        "untied",
        4,
        {"tensor": 2, "context": 2},
        {"correction": "mis", "correction_level": "sequence", "old_logprobs": "recomputed", "entropy_coef": 0.01},
    ),
    ("qwen3", 4, {"tensor": 2}, {"correction": "tis", "old_logprobs": "recomputed", "loss_mean": "sequence_sum"}),
    ("qwen2", 4, {"pipeline": 2, "context": 2}, {"correction": "decoupled", "old_logprobs": "interpolated"}),
    ("deep", 2, {"pipeline": 2, "chunks": 2}, {"algorithm": "grpo", "kl": "k3", "kl_coef": 0.1}),
    ("deep", 4, {"tensor": 2, "pipeline": 2, "chunks": 2}, {"algorithm": "dapo", "off_policy_delta": 0.4}),
    ("moe", 4, {"tensor": 2, "expert": 2}, {"algorithm": "gmpo"}),
    ("balanced", 4, {"tensor": 2, "context": 2}, {"algorithm": "cispo", "gradient_checkpointing": True}),
    ("moe", 4, {"context": 2, "expert": 2}, {"algorithm": "gspo", "clip_low": 0.04, "clip_high": 0.05}),
    ("balanced", 4, {"pipeline": 2, "expert": 2}, {"algorithm": "dapo", "entropy_coef": 0.01}),
    ("moe", 4, {"tensor": 2, "expert_tensor": 2}, {"algorithm": "sapo"}),
    ("moe", 2, {"pipeline": 2}, {"algorithm": "dapo", "routing_replay": True, "kl": "k3", "kl_coef": 0.1}),
    ("balanced", 4, {"tensor": 2, "context": 2}, {"routing_replay": True, "gradient_checkpointing": True}),
    ("moe", 4, {"pipeline": 2, "expert": 2}, {"algorithm": "grpo", "routing_replay": True, "off_policy_delta": 0.4}),
    ("latent", 2, {"tensor": 2}, {"algorithm": "grpo", "gradient_checkpointing": True}),
    ("latent", 2, {"expert": 2, "fused_activations": True}, {"algorithm": "dapo"}),
    ("latent", 2, {"pipeline": 2}, {"algorithm": "cispo", "kl": "k3", "kl_coef": 0.1}),
    ("latent", 4, {"context": 2, "expert": 2}, {"algorithm": "grpo", "entropy_coef": 0.01}),
    ("whole_queries", 4, {"tensor": 2, "context": 2}, {"algorithm": "dapo"}),
    ("latent", 2, {"tensor": 2}, {"routing_replay": True, "kl": "k3", "kl_coef": 0.1}),
    ("latent", 4, {"context": 2, "expert": 2}, {"routing_replay": True, "gradient_checkpointing": True}),
    ("latent", 2, {"pipeline": 2, "chunks": 2}, {"algorithm": "dapo", "routing_replay": True}),
    ("deep_moe", 2, {"pipeline": 2, "chunks": 2}, {"routing_replay": True, "gradient_checkpointing": True}),
]


def truncated(samples: list[Sample]) -> list[Sample]:
    """The samples, of which every third was drawn with top_p."""
    behaviour = behaviour_of({"temperature": 0.7, "top_p": 0.9})
    return [replace(s, behaviour=behaviour, temperature=0.7) if not i % 3 else s for i, s in enumerate(samples)]


class Found:
    """The jobs of all cases, done by as few starts of processes as there are numbers of them."""

    def __init__(self, folder: Path) -> None:
        self.jobs: list[MegatronJob] = []
        models = {
            family: make_tiny_model(folder / family, family=family, vocab_size=VOCABULARY)
            for family in ("qwen3", "qwen2", "llama")
        }  # type: ignore[arg-type]
        models["untied"] = make_tiny_model(folder / "untied", tied=False, vocab_size=VOCABULARY, seed=3)
        models["other"] = make_tiny_model(folder / "other", vocab_size=VOCABULARY, seed=5)
        models["deep"] = make_tiny_model(folder / "deep", vocab_size=VOCABULARY, num_layers=4, seed=4)
        models["moe"] = make_moe(folder / "moe")
        models["balanced"] = make_moe(folder / "balanced", output_router_logits=True, router_aux_loss_coef=0.5)
        models["deep_moe"] = make_moe(folder / "deep_moe", num_hidden_layers=4)
        models["latent"] = make_latent(folder / "latent")
        models["whole_queries"] = make_latent(folder / "whole_queries", narrow_queries=False)
        for at, (model, _, layout, more) in enumerate(CASES):
            config = TrainerConfig(token_budget=120, device="cpu", **more)
            samples = drifted_samples(models[model], TrainerConfig(device="cpu"), at)[:9]
            if at % 4 == 0:
                samples = truncated(samples)
            if config.routing_replay:
                samples = routed_by_chance(models[model], samples, at)
            reference = models["other" if model == "qwen3" else model]
            rows = make_rows([5, 3, 9]) if config.sft_files else []
            job = MegatronJob(
                folder=models[model],
                out=folder / f"written-{at}",
                layout=MegatronSettings(**layout),
                reference=reference,
                config=config,
                samples=samples,
                rows=rows,
            )
            self.jobs.append(job)
        self.results: dict[int, MegatronResult] = {}
        for processes in (2, 4):
            own = [at for at, (_, count, _, _) in enumerate(CASES) if count == processes]
            done = run_jobs([self.jobs[at] for at in own], processes, folder)
            self.results |= dict(zip(own, done, strict=True))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return Found(tmp_path_factory.mktemp("megatron"))


def by_torch(job: MegatronJob) -> tuple[Any, dict[str, torch.Tensor], TokenStats, float | None, float]:
    """The same by the torch backend, in one process."""
    learner = Learner(job.folder, job.config, reference=job.reference)
    routed = job.config.routing_replay
    logprobs = score(learner.model, job.samples, job.config, CPU, learner.ranks, routed=routed)
    learner.score(job.samples)
    stats = learner.accumulate(job.samples, job.fresh_version)
    mixed = learner.accumulate_mixed(job.rows)
    gradients: dict[str, torch.Tensor] = {}
    for name, parameter in learner.model.named_parameters():
        assert parameter.grad is not None
        gradients |= stored(name.removeprefix("network."), parameter.grad.clone())
    return logprobs, gradients, stats, mixed, learner.stepper.clip()


def stored(name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """A parameter in the form of the files: experts one by one."""
    path, _, last = name.rpartition(".")
    if last == "down_proj":
        return {f"{path}.{at}.down_proj.weight": one for at, one in enumerate(tensor)}
    if last == "gate_up_proj":
        return {
            f"{path}.{at}.{projection}.weight": half
            for at, one in enumerate(tensor)
            for projection, half in zip(("gate_proj", "up_proj"), one.chunk(2), strict=True)
        }
    return {name: tensor}


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: f"{CASES[at][0]}-{CASES[at][1]}-{CASES[at][2]}")
def test_a_layout_has_the_logprobs_losses_and_gradients_of_the_torch_backend(found: Found, at: int) -> None:
    job, result = found.jobs[at], found.results[at]
    logprobs, gradients, stats, mixed, norm = by_torch(job)
    for call_id, expected in logprobs.items():
        assert np.abs(result.logprobs[call_id] - expected).max() <= TOLERANCE, call_id
    own, own_mixed, own_norm = result.figures
    for name in ("num_tokens", "clipped_low", "clipped_high", "dropped", "fresh_tokens", "off_policy_tokens"):
        assert getattr(own, name) == getattr(stats, name), name
    assert own.sample_tokens == stats.sample_tokens
    for name in ("loss", "balance_loss", "entropy_sum", "reference_kl_sum", "ratio_sum", "off_policy_weight_sum"):
        assert getattr(own, name) == pytest.approx(getattr(stats, name), rel=TOLERANCE, abs=TOLERANCE), name
    assert own_mixed == (None if mixed is None else pytest.approx(mixed, rel=TOLERANCE))
    assert own_norm == pytest.approx(norm, rel=TOLERANCE)
    assert result.gradients.keys() == gradients.keys()
    for name, expected in gradients.items():
        difference = float((result.gradients[name] - expected).norm())
        assert difference <= TOLERANCE * float(expected.norm()) + 1e-8, name


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: f"{CASES[at][0]}-{CASES[at][1]}-{CASES[at][2]}")
def test_what_processes_write_together_is_what_they_read(found: Found, at: int) -> None:
    folders = (found.jobs[at].folder, found.jobs[at].out)
    before, after = (load_file(folder / "model.safetensors") for folder in folders)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), name
