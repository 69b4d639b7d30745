"""The objective against plain loops over tokens, whose losses and derivatives are written out by hand.

Every algorithm, loss mean, correction and divergence, alone and together; loss and gradient to 1e-6 in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest
import torch

from weir.trainer.losses.normalization import LOSS_MEANS
from weir.trainer.losses.objective import SampledTokens, objective
from weir.trainer.losses.sequences import Sequences
from weir.trainer.rounds.prepare import overlong_penalty
from weir.trainer.settings.algorithms import ALGORITHMS, AlgorithmConfig
from weir.trainer.settings.config import TrainerConfig

LENGTHS, GROUPS = (11, 4, 7, 1, 9), ("a", "a", "b", "b", "b")
RECOMPUTED = {"old_logprobs": "recomputed"}
OPTIONS: list[dict[str, Any]] = [
    {},
    *({"loss_mean": name} for name in ("token", "sequence", "sequence_sum", "group")),
    {"loss_mean": "constant", "loss_constant": 16},
    RECOMPUTED,
    {"clip_low": 0.1, "clip_high": 0.4},
    {"dual_clip": 1.2},
    {"dual_clip": None},
    *({"kl": kl, "kl_coef": 0.1, "kl_ratio": ratio} for kl in ("k1", "k2", "k3") for ratio in (False, True)),
    {"entropy_coef": 0.02},
    {"off_policy_delta": 0.05},
    {"correction": "tis", "correction_high": 1.1} | RECOMPUTED,
    {"correction": "icepop", "correction_low": 0.9, "correction_high": 1.2} | RECOMPUTED,
    {"correction": "decoupled", "correction_high": 1.1} | RECOMPUTED,
    {"correction": "decoupled", "correction_high": 1.1, "old_logprobs": "interpolated"},
    *(
        {"correction": "mis", "correction_level": level, "correction_mode": mode, "correction_veto": veto} | RECOMPUTED
        for level in ("token", "sequence", "geometric")
        for mode in ("truncate", "clip", "mask")
        for veto in (0.0, 0.8)
    ),
    {"policy_loss": "reinforce", "correction": "tis", "correction_high": 1.1} | RECOMPUTED,
    {"correction": "tis", "kl": "k3", "kl_coef": 0.1, "entropy_coef": 0.02, "off_policy_delta": 0.05} | RECOMPUTED,
]


@dataclass(frozen=True, slots=True)
class Token:
    logprob: float
    recorded: float
    recomputed: float
    reference: float
    entropy: float
    staleness: int
    advantage: float


Slope = tuple[float, float]  # a loss, and its derivative by the token's logprob


def clipped(r: float, a: float, config: TrainerConfig, dual: float | None) -> Slope:
    bounded = -min(max(r, 1 - config.clip_low), 1 + config.clip_high) * a
    loss, slope = (bounded, 0.0) if bounded > -r * a else (-r * a, -r * a)
    return (-dual * a, 0.0) if dual is not None and a < 0 and loss > -dual * a else (loss, slope)


def cispo(r: float, token: Token, config: TrainerConfig) -> Slope:
    weight = min(max(r, 1 - config.clip_low), 1 + config.clip_high)
    return -weight * token.advantage * token.logprob, -weight * token.advantage


def sapo(r: float, a: float, config: TrainerConfig) -> Slope:
    tau = config.sapo_tau_positive if a > 0 else config.sapo_tau_negative
    gate = 1 / (1 + math.exp(-tau * (r - 1)))
    return -a * gate * 4 / tau, -a * 4 * gate * (1 - gate) * r


def gmpo(tokens: list[Token], old: list[float], config: TrainerConfig) -> tuple[float, list[float]]:
    """One loss for the sequence, and its derivatives by each logprob."""
    a, logs = tokens[0].advantage, [t.logprob - o for t, o in zip(tokens, old, strict=True)]
    free = [x <= config.clip_high if a > 0 else x >= -config.clip_low for x in logs]
    edge = config.clip_high if a > 0 else -config.clip_low
    mean = math.exp(sum(x if f else edge for x, f in zip(logs, free, strict=True)) / len(logs))
    return -a * mean, [-a * mean / len(logs) * f for f in free]


def policy(tokens: list[Token], old: list[float], config: TrainerConfig) -> list[Slope]:
    ratios = [math.exp(t.logprob - o) for t, o in zip(tokens, old, strict=True)]
    if config.policy_loss == "gspo":
        ratios = [math.exp(sum(map(math.log, ratios)) / len(ratios))] * len(ratios)
    dual = config.dual_clip if config.policy_loss == "clipped" else None
    if config.policy_loss in ("clipped", "gspo"):
        return [clipped(r, t.advantage, config, dual) for r, t in zip(ratios, tokens, strict=True)]
    if config.policy_loss == "cispo":
        return [cispo(r, t, config) for r, t in zip(ratios, tokens, strict=True)]
    if config.policy_loss == "reinforce":
        return [(-t.advantage * t.logprob, -t.advantage) for t in tokens]
    assert config.policy_loss == "sapo"
    return [sapo(r, t.advantage, config) for r, t in zip(ratios, tokens, strict=True)]


def old_logprob(token: Token, config: TrainerConfig) -> float:
    if config.old_logprobs == "interpolated":
        share = 1 / token.staleness if token.staleness else 0.0
        return share * token.recorded + (1 - share) * token.logprob
    return token.recorded if config.old_logprobs == "recorded" else token.recomputed


def corrections(tokens: list[Token], old: list[float], config: TrainerConfig) -> list[float]:
    """The importance weight of each token."""
    low, high = config.correction_low, config.correction_high
    logs = [o - t.recorded for t, o in zip(tokens, old, strict=True)]
    if config.correction == "none":
        return [1.0] * len(tokens)
    if config.correction == "mis" and config.correction_veto and min(logs) < math.log(config.correction_veto):
        return [0.0] * len(tokens)
    if config.correction == "mis" and config.correction_level != "token":
        logs = [sum(logs) / (len(logs) if config.correction_level == "geometric" else 1)] * len(logs)
    kept = {
        "truncate": lambda w: min(w, high),
        "clip": lambda w: min(max(w, low), high),
        "mask": lambda w: w if low <= w <= high else 0.0,
        "cap": lambda w: w if w <= high else 0.0,
    }[{"tis": "truncate", "icepop": "mask", "decoupled": "cap", "mis": config.correction_mode}[config.correction]]
    return [kept(math.exp(x)) for x in logs]


def divergence(token: Token, old: float, config: TrainerConfig) -> Slope:
    x, r = token.logprob - token.reference, math.exp(token.logprob - old)
    loss, slope = {"k1": (x, 1.0), "k2": (x * x / 2, x), "k3": (math.exp(-x) - 1 + x, 1 - math.exp(-x))}[config.kl]
    return (r * loss, r * (loss + slope)) if config.kl_ratio else (loss, slope)


def shares(config: TrainerConfig) -> list[float]:
    """The weight of each token of a sequence in the mean."""
    count, of_group = len(LENGTHS), {g: sum(n for n, h in zip(LENGTHS, GROUPS, strict=True) if h == g) for g in GROUPS}
    return {
        "token": [1 / sum(LENGTHS)] * count,
        "sequence": [1 / count / n for n in LENGTHS],
        "sequence_sum": [1 / count] * count,
        "constant": [1 / count / (config.loss_constant or 1)] * count,
        "group": [1 / len(of_group) / of_group[g] for g in GROUPS],
    }[config.loss_mean]


def reference(sequences: list[list[Token]], config: TrainerConfig) -> tuple[float, list[float]]:
    """The loss of the step, and its derivative by each logprob."""
    loss, gradient = 0.0, []
    for tokens, share in zip(sequences, shares(config), strict=True):
        old = [old_logprob(token, config) for token in tokens]
        weights = [share * w for w in corrections(tokens, old, config)]
        drift = sum(t.recorded - t.logprob for t in tokens) / len(tokens)
        if config.off_policy_delta is not None and drift > config.off_policy_delta and tokens[0].advantage < 0:
            weights = [0.0] * len(tokens)
        if config.policy_loss == "gmpo":
            value, found = gmpo(tokens, old, config)
            loss += sum(weights) * value
            slopes = [sum(weights) * slope for slope in found]
        else:
            terms = policy(tokens, old, config)
            loss += sum(w * value for w, (value, _) in zip(weights, terms, strict=True))
            slopes = [w * slope for w, (_, slope) in zip(weights, terms, strict=True)]
        for i, token in enumerate(tokens):
            value, slope = divergence(token, old[i], config) if config.kl != "none" else (0.0, 0.0)
            loss += share * (config.kl_coef * value - config.entropy_coef * token.entropy)
            gradient.append(slopes[i] + share * config.kl_coef * slope)
    return loss, gradient


def draw(seed: int) -> list[list[Token]]:
    """Sequences, one of five with an advantage of zero, whose ratios fall on all sides of all bounds."""
    random = np.random.default_rng(seed)
    sequences = []
    for i, length in enumerate(LENGTHS):
        recorded, advantage = -random.exponential(1.5, length), 0.0 if i == 3 else random.standard_normal()
        recomputed = recorded + random.normal(0, 0.2, length)
        logprobs, references = recorded + random.normal(0, 0.4, (2, length))
        entropies, staleness = random.exponential(1.0, length), random.integers(0, 4, length)
        columns = [logprobs, recorded, recomputed, references, entropies]
        rounded = np.stack(columns).astype(np.float32).astype(float).T  # both sides start from the same bits
        sequences.append(
            [Token(*row, int(old), float(np.float32(advantage))) for row, old in zip(rounded, staleness, strict=True)]
        )
    return sequences


def computed(sequences: list[list[Token]], config: TrainerConfig, dtype: torch.dtype) -> tuple[float, list[float]]:
    """The same by the trainer."""
    every = [token for tokens in sequences for token in tokens]

    def column(name: str) -> torch.Tensor:
        return torch.tensor([getattr(token, name) for token in every], dtype=dtype)

    logprobs, borders = column("logprob").requires_grad_(), Sequences.of(LENGTHS)
    tokens = SampledTokens(
        logprobs=logprobs,
        entropy=column("entropy"),
        recorded=column("recorded"),
        recomputed=column("recomputed"),
        reference=column("reference"),
        advantages=column("advantage"),
        staleness=column("staleness").long(),
        sequences=borders,
    )
    weights = LOSS_MEANS[config.loss_mean](LENGTHS, GROUPS, float(config.loss_constant or 1))
    loss = (objective(tokens, config).losses.loss * borders.spread(torch.tensor(weights, dtype=dtype))).sum()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    return float(loss.detach()), gradient.tolist()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-7)])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_loss_and_gradient_are_those_of_plain_loops(algorithm: str, dtype: torch.dtype, tolerance: float) -> None:
    compared = 0
    for seed, option in enumerate(OPTIONS):
        given = {"algorithm": algorithm} | ({"loss_constant": 16} if algorithm == "dr_grpo" else {})
        if "loss_mean" in option:
            given.pop("loss_constant", None)
        try:
            config = TrainerConfig(**(given | option))
        except ValueError:
            continue  # it makes no sense with this algorithm (test_combinations.py)
        sequences = draw(seed)
        loss, gradient = reference(sequences, config)
        found_loss, found_gradient = computed(sequences, config, dtype)
        assert found_loss == pytest.approx(loss, rel=tolerance, abs=tolerance), option
        assert found_gradient == pytest.approx(gradient, rel=tolerance, abs=tolerance), option
        compared += 1
    assert compared > 30


def test_every_choice_is_compared() -> None:
    for name in ("loss_mean", "correction", "correction_level", "correction_mode", "kl", "old_logprobs"):
        choices = set(get_args(AlgorithmConfig.model_fields[name].annotation))
        assert choices == {option[name] for option in OPTIONS if name in option} | {getattr(TrainerConfig(), name)}


def test_the_overlong_penalty_by_hand() -> None:
    """DAPO's: 0 up to limit - buffer, then -(L - (limit - buffer)) / buffer, -1 from the limit on; times the factor."""
    config = TrainerConfig(overlong_limit=16, overlong_buffer=4, overlong_penalty=0.5)
    found = [overlong_penalty(length, config) for length in (11, 12, 13, 14, 15, 16, 17)]
    assert found == pytest.approx([0, 0, -0.125, -0.25, -0.375, -0.5, -0.5])
    hard = TrainerConfig(overlong_limit=16)
    assert [overlong_penalty(length, hard) for length in (15, 16, 17)] == [0.0, 0.0, -1.0]
