"""Off-policy samples before the first step: their tokens' probabilities under the policy, and under what drew them.

Invariants: log pi is under the round's first weights, over the whole vocabulary, at the sample's temperature. log mu is
of the distribution that the engine drew from: 0 for greedy samples; else the recorded logprob, which engines give after
temperature, penalties, bias and grammar and before truncation, less the log of the mass that truncation kept. Where the
engine gave the logprob after truncation, that is log mu; else the mass is recomputed under the round's first weights.
docs/trainer.md has the formulas and their sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from weir.store.records.call_record import Logprobs
from weir.trainer.credit.behaviour import Behaviour
from weir.trainer.credit.samples import Sample
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.scoring import Scores, by_sample
from weir.trainer.model.batching import lay_out
from weir.trainer.model.ops.kept_mass import TruncationRows
from weir.trainer.model.token_model import TokenModel
from weir.trainer.settings.config import TrainerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPolicyScores:
    """By call id of an off-policy sample with N targets."""

    policy: Scores  # log pi, (N,)
    behaviour: Scores  # log mu, (N,)
    outside: dict[str, int]  # targets that the recomputed truncation does not keep


def score_off_policy(
    model: TokenModel, samples: Sequence[Sample], config: TrainerConfig, device: torch.device, ranks: Ranks
) -> OffPolicyScores | None:
    """The scores of the off-policy samples; None without any."""
    chosen = [sample for sample in samples if sample.behaviour.is_off_policy]
    if not chosen:
        return None
    layout = model.layout(share_prefixes=config.share_prefixes)

    @torch.no_grad()
    def compute(part: Sequence[Sample]) -> torch.Tensor:
        batch = lay_out(part, layout, device, routed=config.routing_replay)
        behaviours, lengths = [sample.behaviour for sample in part], [len(sample.output_ids) for sample in part]
        temperatures = _column([behaviour.temperature for behaviour in behaviours], lengths, device)
        scored = model(batch, temperatures, truncation_rows(behaviours, lengths, device))
        assert scored.kept is not None
        return torch.cat([scored.logprobs[:, None], scored.kept], dim=1)

    found = by_sample(chosen, config, layout, ranks, compute, routed=config.routing_replay)
    return off_policy_scores(chosen, found)


def off_policy_scores(chosen: Sequence[Sample], found: Scores) -> OffPolicyScores:
    """The scores of off-policy samples, from the logprob and the kept mass at each target: arrays of shape (N, 3)."""
    return OffPolicyScores(
        policy={sample.call_id: found[sample.call_id][:, 0] for sample in chosen},
        behaviour={sample.call_id: behaviour_logprobs(sample, found[sample.call_id][:, 1]) for sample in chosen},
        outside={sample.call_id: _outside(sample, found[sample.call_id][:, 2]) for sample in chosen},
    )


def behaviour_logprobs(sample: Sample, log_mass: Logprobs) -> Logprobs:
    """log mu of each target, (N,), from the log of the mass that truncation kept.

    A truncated sample of constrained logits, whose mass is unknown, counts as if all was kept: mu is at least that, and
    at most 1 / top_p times as much.
    """
    behaviour = sample.behaviour
    if behaviour.greedy:
        return np.zeros_like(sample.old_logprobs)
    if sample.sampling_logprobs is not None:
        return sample.sampling_logprobs
    if not behaviour.truncates or behaviour.constrained:
        return sample.old_logprobs
    drawn: Logprobs = (sample.old_logprobs - log_mass).astype(np.float32)
    return drawn


def truncation_rows(behaviours: Sequence[Behaviour], lengths: Sequence[int], device: torch.device) -> TruncationRows:
    """The parameters at each target of samples with these numbers of targets."""
    starts = np.cumsum([0, *lengths[:-1]])

    def column(name: str) -> torch.Tensor:
        return _column([getattr(behaviour, name) for behaviour in behaviours], lengths, device)

    return TruncationRows(
        top_k=column("top_k").long(),
        top_p=column("top_p"),
        min_p=column("min_p"),
        frequency_penalty=column("frequency_penalty"),
        presence_penalty=column("presence_penalty"),
        repetition_penalty=column("repetition_penalty"),
        penalised=[behaviour.penalises for behaviour, n in zip(behaviours, lengths, strict=True) for _ in range(n)],
        first=[int(start) for start, n in zip(starts, lengths, strict=True) for _ in range(n)],
    )


def _column(values: Sequence[float], lengths: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.repeat(np.asarray(values, np.float32), lengths)).to(device)


def _outside(sample: Sample, kept: Logprobs) -> int:
    known = sample.behaviour.truncates and not sample.behaviour.constrained and sample.sampling_logprobs is None
    return int((kept == 0).sum()) if known else 0
