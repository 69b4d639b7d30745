"""Writes vectors.json: losses and gradients of verl 0.9.1 and TRL 1.16.0 on fixed inputs, for test_golden.py.

Needs an environment of its own with those two, torch, tensordict, codetiming and hydra-core; run it there. Inputs are
five sequences of up to eleven targets, in float32.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from trl import GRPOConfig, GRPOTrainer
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.workers.config import ActorConfig

LENGTHS = (11, 4, 7, 1, 9)
GROUPS = ("a", "a", "b", "b", "b")
random = np.random.default_rng(20)


def padded(values: np.ndarray) -> torch.Tensor:
    return torch.tensor(values * MASK.numpy(), dtype=torch.float32)


MASK = torch.tensor([[1.0] * n + [0.0] * (max(LENGTHS) - n) for n in LENGTHS])
SHAPE = tuple(MASK.shape)
LOGPROBS = padded(-random.exponential(1.5, SHAPE))
RECORDED = padded((LOGPROBS + 0.4 * random.standard_normal(SHAPE)).numpy())
RECOMPUTED = padded((RECORDED + 0.2 * random.standard_normal(SHAPE)).numpy())
REFERENCE = padded((LOGPROBS + 0.5 * random.standard_normal(SHAPE)).numpy())
ADVANTAGES = torch.tensor([1.2, -0.7, 0.4, -1.5, 2.0])
REWARDS = torch.tensor([0.0, 1.3, 0.1, 0.3, 2.1])
VALUES = padded(random.standard_normal(SHAPE))
ENTROPIES = padded(random.exponential(1.0, SHAPE))


def flat(values: torch.Tensor) -> list[float]:
    return values[MASK.bool()].tolist()


def case(library: str, settings: dict[str, Any], loss: torch.Tensor, logprobs: torch.Tensor) -> dict[str, Any]:
    (gradient,) = torch.autograd.grad(loss, logprobs)
    return {"library": library, "settings": settings, "loss": float(loss.detach()), "gradient": flat(gradient)}


def actor(**settings: Any) -> ActorConfig:
    return ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **settings)


def verl_case(
    name: str, mean: str, settings: dict[str, Any], weights: torch.Tensor | None = None, **of_verl: Any
) -> dict[str, Any]:
    """`old` is what the ratio is taken to; with weights the settings say how they were made."""
    logprobs = LOGPROBS.clone().requires_grad_()
    old = RECOMPUTED if settings.get("old_logprobs") == "recomputed" else RECORDED
    advantages = ADVANTAGES[:, None] * MASK
    bounds = {f"clip_ratio_{side}": settings.get(f"clip_{side}", 0.2) for side in ("low", "high")}
    config = actor(**bounds, **of_verl)
    loss, _ = core_algos.get_policy_loss_fn(name)(old, logprobs, advantages, MASK, mean, config, weights)
    return case("verl", settings, loss, logprobs)


def verl_terms(settings: dict[str, Any], *, kl: str | None = None) -> dict[str, Any]:
    """verl's clipped loss with a divergence or an entropy bonus beside it, as its actor adds them up."""
    logprobs = LOGPROBS.clone().requires_grad_()
    config = actor(clip_ratio_low=0.2, clip_ratio_high=0.28)
    loss, _ = core_algos.get_policy_loss_fn("vanilla")(
        RECORDED, logprobs, ADVANTAGES[:, None] * MASK, MASK, "token-mean", config, None
    )
    if kl is None:
        loss = loss - settings["entropy_coef"] * core_algos.agg_loss(ENTROPIES, MASK, "token-mean")
    else:
        divergence = core_algos.kl_penalty(logprobs, REFERENCE, kl)
        loss = loss + settings["kl_coef"] * core_algos.agg_loss(divergence, MASK, "token-mean")
    return case("verl", {"algorithm": "dapo"} | settings, loss, logprobs)


def verl_cases() -> list[dict[str, Any]]:
    dapo = {"policy_loss": "clipped", "clip_low": 0.2, "clip_high": 0.28}
    difference = (RECOMPUTED - RECORDED) * MASK

    def weights(level: str, threshold: float | str) -> torch.Tensor:
        return rollout_corr_helper.compute_rollout_correction_weights(difference, MASK, level, threshold)[0]

    recomputed = dapo | {"loss_mean": "token", "old_logprobs": "recomputed"}
    return [
        verl_case("vanilla", "token-mean", dapo | {"loss_mean": "token"}),
        verl_case("vanilla", "seq-mean-token-mean", dapo | {"loss_mean": "sequence"}),
        verl_case("vanilla", "seq-mean-token-sum", dapo | {"loss_mean": "sequence_sum"}),
        verl_case("vanilla", "token-mean", dapo | {"loss_mean": "token", "dual_clip": 1.2}, clip_ratio_c=1.2),
        verl_case(
            "vanilla",
            "seq-mean-token-sum-norm",
            {"algorithm": "dr_grpo", "clip_low": 0.2, "clip_high": 0.2, "loss_constant": SHAPE[1]},
        ),
        *(verl_terms({"kl": kl, "kl_coef": 0.05}, kl=kl) for kl in ("k1", "k2", "k3")),
        verl_terms({"entropy_coef": 0.03}),
        verl_case("gspo", "seq-mean-token-mean", {"algorithm": "gspo", "clip_low": 0.05, "clip_high": 0.08}),
        verl_case("gspo", "seq-mean-token-mean", {"algorithm": "gspo", "clip_low": 3e-4, "clip_high": 4e-4}),
        verl_case("cispo", "token-mean", {"algorithm": "cispo", "clip_low": 1.0, "clip_high": 0.28}),
        verl_case("cispo", "token-mean", {"algorithm": "cispo", "clip_low": 0.2, "clip_high": 0.28}),
        verl_case("sapo", "", {"algorithm": "sapo"}, tau_pos=1.0, tau_neg=1.05),
        verl_case("geo_mean", "", {"algorithm": "gmpo", "clip_low": 0.4, "clip_high": 0.4}),
        verl_case("geo_mean", "", {"algorithm": "gmpo", "clip_low": 0.1, "clip_high": 0.05}),
        verl_case(
            "vanilla", "token-mean", recomputed | {"correction": "tis", "correction_high": 1.1}, weights("token", 1.1)
        ),
        verl_case(
            "vanilla",
            "token-mean",
            recomputed | {"correction": "icepop", "correction_low": 0.9, "correction_high": 1.2},
            weights("token", "0.9_1.2"),
        ),
        verl_case(
            "vanilla",
            "token-mean",
            recomputed
            | {
                "correction": "mis",
                "correction_level": "sequence",
                "correction_mode": "truncate",
                "correction_high": 1.1,
            }
            | {"correction_veto": 0.0},
            weights("sequence", 1.1),
        ),
        verl_case(
            "gpg",
            "seq-mean-token-sum",
            recomputed
            | {"policy_loss": "reinforce", "loss_mean": "sequence_sum", "correction": "tis", "correction_high": 1.2},
            weights("token", 1.2),
        ),
    ]


def trl_case(settings: dict[str, Any], *, opsm: float | None = None, **of_trl: Any) -> dict[str, Any]:
    """`GRPOTrainer._compute_loss` itself, on logprobs that are given instead of a model."""
    logprobs = LOGPROBS.clone().requires_grad_()
    arguments = GRPOConfig(output_dir="/tmp/none", use_cpu=True, bf16=False, report_to=[], **of_trl)
    trainer = GRPOTrainer.__new__(GRPOTrainer)
    trainer.args, trainer.loss_type = arguments, arguments.loss_type
    trainer.beta, trainer.importance_sampling_level = arguments.beta, arguments.importance_sampling_level
    trainer.epsilon_low, trainer.epsilon_high = arguments.epsilon, arguments.epsilon_high or arguments.epsilon
    trainer.top_entropy_quantile, trainer.off_policy_mask_threshold = 1.0, opsm
    trainer.aux_loss_enabled, trainer.use_vllm = False, False
    trainer.max_completion_length, trainer.current_gradient_accumulation_steps = 16, 1
    trainer.vllm_importance_sampling_correction = trainer.use_adaptive_entropy = False
    trainer.entropy_coef = settings.get("entropy_coef", 0.0)
    trainer._entropy_bonus_enabled = trainer.entropy_coef > 0
    trainer.accelerator = Accelerator(cpu=True)
    trainer._metrics = {"train": defaultdict(list)}
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (logprobs, ENTROPIES, None)
    zeros = torch.zeros(SHAPE, dtype=torch.int64)
    inputs = {
        "prompt_ids": zeros[:, :1],
        "prompt_mask": zeros[:, :1] + 1,
        "completion_ids": zeros,
        "completion_mask": MASK,
        "advantages": ADVANTAGES,
        "old_per_token_logps": RECORDED,
        "ref_per_token_logps": REFERENCE,
        "num_items_in_batch": MASK.sum(),
    }
    model = SimpleNamespace(training=True)
    trainer.args.steps_per_generation = 1
    trainer.model = model
    return case("trl", settings, trainer._compute_loss(model, inputs), logprobs)


def trl_cases() -> list[dict[str, Any]]:
    plain = {"dual_clip": None}
    bounds = {"epsilon": 0.2, "epsilon_high": 0.28}
    return [
        trl_case({"algorithm": "grpo", "clip_high": 0.28} | plain, loss_type="grpo", beta=0.0, **bounds),
        trl_case(
            {"algorithm": "grpo", "clip_high": 0.28, "kl": "k3", "kl_coef": 0.04} | plain,
            loss_type="grpo",
            beta=0.04,
            use_bias_correction_kl=False,
            **bounds,
        ),
        trl_case(
            {"algorithm": "grpo", "clip_high": 0.28, "kl": "k3", "kl_coef": 0.04, "kl_ratio": True} | plain,
            loss_type="grpo",
            beta=0.04,
            use_bias_correction_kl=True,
            **bounds,
        ),
        trl_case({"algorithm": "dapo"} | plain, loss_type="dapo", beta=0.0, **bounds),
        trl_case(
            {"algorithm": "dr_grpo", "clip_high": 0.28, "loss_constant": 16} | plain,
            loss_type="dr_grpo",
            beta=0.0,
            **bounds,
        ),
        trl_case(
            {"algorithm": "gspo", "clip_low": 0.05, "clip_high": 0.08},
            loss_type="grpo",
            importance_sampling_level="sequence",
            beta=0.0,
            epsilon=0.05,
            epsilon_high=0.08,
        ),
        trl_case({"algorithm": "dapo", "entropy_coef": 0.03} | plain, loss_type="dapo", beta=0.0, **bounds),
        trl_case(
            {"algorithm": "cispo", "clip_high": 0.28}, loss_type="cispo", beta=0.0, epsilon=0.2, epsilon_high=1.28
        ),
        trl_case(
            {"algorithm": "sapo"},
            loss_type="sapo",
            beta=0.0,
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05,
            **bounds,
        ),
        trl_case(
            {"algorithm": "dapo", "off_policy_delta": 0.05} | plain, opsm=0.05, loss_type="dapo", beta=0.0, **bounds
        ),
    ]


def advantages() -> dict[str, list[float]]:
    scores = torch.zeros(SHAPE)
    scores[:, 0] = REWARDS
    index = np.array(GROUPS)
    config = SimpleNamespace(gamma=1.0)
    of_tokens = {
        "grpo": core_algos.compute_grpo_outcome_advantage(scores, MASK, index)[0],
        "dr_grpo": core_algos.compute_grpo_outcome_advantage(scores, MASK, index, norm_adv_by_std_in_grpo=False)[0],
        "rloo": core_algos.compute_rloo_outcome_advantage(scores, MASK, index)[0],
    }
    last = torch.zeros(SHAPE)
    last[torch.arange(len(LENGTHS)), torch.tensor(LENGTHS) - 1] = REWARDS
    of_tokens["reinforce_plus_plus"] = core_algos.compute_reinforce_plus_plus_outcome_advantage(last, MASK, config)[0]
    return {name: values[:, 0].tolist() for name, values in of_tokens.items()}


def penalised(mask: torch.Tensor) -> torch.Tensor:
    """Rewards at the last tokens, less 0.1 k1 from the reference at each token."""
    last = -0.1 * core_algos.kl_penalty_forward(RECORDED, REFERENCE, "k1") * mask
    last[torch.arange(len(LENGTHS)), torch.tensor(LENGTHS) - 1] += REWARDS
    return last


def token_advantages() -> dict[str, list[float]]:
    config = SimpleNamespace(gamma=1.0)
    found = core_algos.compute_reinforce_plus_plus_outcome_advantage(penalised(MASK), MASK, config)[0]
    return {"reinforce_plus_plus_kl": flat(found)}


def joined(rows: torch.Tensor, observation: float) -> torch.Tensor:
    """The first two rows as one, with an observation of three tokens between them."""
    first = torch.cat([rows[0, : LENGTHS[0]], torch.full((3,), observation), rows[1, : LENGTHS[1]]])
    others = torch.nn.functional.pad(rows[2:], (0, len(first) - rows.shape[1]))
    return torch.cat([first[None], others])


def gae_cases() -> list[dict[str, Any]]:
    mask = joined(MASK, 0.0)
    found = []
    for gamma, lam in ((1.0, 1.0), (1.0, 0.95), (0.99, 0.9)):
        rewards, values = joined(penalised(MASK), 0.0), joined(VALUES, 7.0)
        advantages, returns = core_algos.compute_gae_advantage_return(rewards, values, mask, gamma, lam)
        keep = mask.bool()
        found.append(
            {"gamma": gamma, "lam": lam, "advantages": advantages[keep].tolist(), "returns": returns[keep].tolist()}
        )
    return found


def value_loss() -> dict[str, Any]:
    values = REFERENCE.clone().requires_grad_()
    loss, _ = core_algos.compute_value_loss(values, LOGPROBS, VALUES, MASK, 0.5, "token-mean")
    (gradient,) = torch.autograd.grad(loss, values)
    return {"clip": 0.5, "loss": float(loss.detach()), "gradient": flat(gradient)}


def divergences() -> dict[str, list[float]]:
    return {name: flat(core_algos.kl_penalty_forward(LOGPROBS, REFERENCE, name)) for name in ("k1", "k2", "k3")}


if __name__ == "__main__":
    inputs = {
        "lengths": LENGTHS,
        "groups": GROUPS,
        "logprobs": flat(LOGPROBS),
        "recorded": flat(RECORDED),
        "recomputed": flat(RECOMPUTED),
        "reference": flat(REFERENCE),
        "advantages": ADVANTAGES.tolist(),
        "values": flat(VALUES),
        "entropies": flat(ENTROPIES),
        "rewards": REWARDS.tolist(),
    }
    vectors = {
        "made_with": {"verl": "0.9.1", "trl": "1.16.0"},
        "inputs": inputs,
        "losses": verl_cases() + trl_cases(),
        "advantages": advantages(),
        "token_advantages": token_advantages(),
        "gae": gae_cases(),
        "value_loss": value_loss(),
        "divergences": divergences(),
    }
    Path(__file__).with_name("vectors.json").write_text(json.dumps(vectors, indent=1) + "\n")
