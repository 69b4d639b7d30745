"""Token-level advantages over all samples of a round, by GAE or REINFORCE++; otherwise a call's advantage at each
token.

Invariant: observations are not steps. The answers of a branch follow each other as if no observation stood between
them; where several calls follow one, the next value and advantage are their means. Everything is in float64 and
without gradient.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weir.store.records.call_record import Logprobs
from weir.trainer.credit.samples import Sample
from weir.trainer.settings.config import TrainerConfig

WHITEN_EPS = 1e-8

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCredit:
    """The credit of a sample's N target tokens."""

    advantages: Floats  # (N,)
    returns: Floats | None  # (N,) the critic's targets; None without a critic


def token_credit(
    samples: Sequence[Sample],
    config: TrainerConfig,
    *,
    values: Mapping[str, Logprobs] | None,
    penalties: Mapping[str, Logprobs] | None,
) -> dict[str, TokenCredit]:
    """The credit of each sample, by call id.

    `values` are the critic's, `penalties` are subtracted from each token's reward; arrays have shape (N,). GAE and
    REINFORCE++ advantages are whitened over all tokens.
    """
    if config.advantage == "gae":
        assert values is not None
        found = generalised_advantages(samples, config, values=values, penalties=penalties)
        whitened = whiten({call_id: credit.advantages for call_id, credit in found.items()})
        return {
            call_id: TokenCredit(advantages=whitened[call_id], returns=credit.returns)
            for call_id, credit in found.items()
        }
    if config.advantage == "reinforce_plus_plus":
        going = whiten({sample.call_id: np.cumsum(_rewards(sample, penalties)[::-1])[::-1] for sample in samples})
    else:
        going = {sample.call_id: np.full(len(sample.output_ids), sample.advantage) for sample in samples}
    return {call_id: TokenCredit(advantages=values_, returns=None) for call_id, values_ in going.items()}


def generalised_advantages(
    samples: Sequence[Sample],
    config: TrainerConfig,
    *,
    values: Mapping[str, Logprobs],
    penalties: Mapping[str, Logprobs] | None,
) -> dict[str, TokenCredit]:
    """GAE (arXiv 1506.02438, equation 16) along each branch, before whitening.

    A_t = delta_t + gamma lambda A_{t+1} with delta_t = r_t + gamma V_{t+1} - V_t. Between two answers V_{t+1} and
    A_{t+1} are also multiplied by the discount of turns (credit = turn). Returns are A_t + V_t.
    """
    following: defaultdict[str | None, list[Sample]] = defaultdict(list)
    for sample in samples:
        following[sample.follows].append(sample)
    of_turns = config.gamma if config.credit == "turn" else 1.0
    found: dict[str, TokenCredit] = {}
    for sample in _children_first(samples, following):
        after = following[sample.call_id]
        value = statistics.fmean(float(values[s.call_id][0]) for s in after) if after else 0.0
        advantage = statistics.fmean(float(found[s.call_id].advantages[0]) for s in after) if after else 0.0
        of_tokens = np.asarray(values[sample.call_id], dtype=np.float64)
        advantages = _backwards(_rewards(sample, penalties), of_tokens, of_turns * value, of_turns * advantage, config)
        found[sample.call_id] = TokenCredit(advantages=advantages, returns=advantages + of_tokens)
    return {sample.call_id: found[sample.call_id] for sample in samples}


def whiten(arrays: Mapping[str, Floats]) -> dict[str, Floats]:
    """(A - mean) / sqrt(var + eps) over the tokens of all arrays, the variance unbiased; a lone token becomes 0."""
    if not arrays:
        return {}
    every = np.concatenate(list(arrays.values()))
    variance = every.var(ddof=1) if len(every) > 1 else 0.0
    return {name: (array - every.mean()) / np.sqrt(variance + WHITEN_EPS) for name, array in arrays.items()}


def _backwards(
    rewards: Floats, values: Floats, next_value: float, next_advantage: float, config: TrainerConfig
) -> Floats:
    advantages = np.empty_like(values)
    for place in range(len(values) - 1, -1, -1):
        delta = rewards[place] + config.gae_gamma * next_value - values[place]
        next_advantage = delta + config.gae_gamma * config.gae_lambda * next_advantage
        advantages[place], next_value = next_advantage, values[place]
    return advantages


def _rewards(sample: Sample, penalties: Mapping[str, Logprobs] | None) -> Floats:
    """(N,): the sample's reward at its last token, minus the penalties."""
    rewards = np.zeros(len(sample.output_ids))
    rewards[-1] = sample.reward
    return rewards if penalties is None else rewards - penalties[sample.call_id]


def _children_first(samples: Sequence[Sample], following: Mapping[str | None, list[Sample]]) -> list[Sample]:
    present = {sample.call_id for sample in samples}
    ordered = [sample for sample in samples if sample.follows not in present]
    for sample in ordered:  # grows while it is walked
        ordered.extend(following.get(sample.call_id, ()))
    return ordered[::-1]
