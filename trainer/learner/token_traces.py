"""What the trainer computed for each token, by call, for those who look at a round's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from weir.store.parquet.round_tokens import CLIPPED_HIGH, CLIPPED_LOW, DROPPED, TRAINED, TokenTrace
from weir.trainer.credit.samples import Sample
from weir.trainer.losses.objective import Objective, SampledTokens


@torch.no_grad()
def traces_of(samples: Sequence[Sample], tokens: SampledTokens, found: Objective) -> list[TokenTrace]:
    """The tokens of a micro-batch, cut into its samples. A token that a correction dropped is not clipped as well."""
    losses = found.losses
    parts = torch.full_like(found.dropped, TRAINED, dtype=torch.uint8)
    for part, where in (
        (CLIPPED_LOW, losses.clipped_low),
        (CLIPPED_HIGH, losses.clipped_high),
        (DROPPED, found.dropped),
    ):
        parts.masked_fill_(where, part)
    ends = np.cumsum([len(sample.output_ids) for sample in samples])[:-1]
    columns = [
        np.split(column.detach().float().cpu().numpy(), ends)
        for column in (tokens.logprobs, tokens.before, tokens.entropy, tokens.advantages)
    ]
    return [
        TokenTrace(
            call_id=sample.call_id,
            logprobs=logprobs,
            before=before,
            entropies=entropies,
            advantages=advantages,
            parts=of_sample,
        )
        for sample, logprobs, before, entropies, advantages, of_sample in zip(
            samples, *columns, np.split(parts.cpu().numpy(), ends), strict=True
        )
    ]
