"""Logprobs of whole samples under given weights, without gradient: the trainer's own, or a reference model's.

Invariant: a sample's logprobs are computed once for a round, before its first optimiser step. Not here: what they are
used for (`objective.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from weir.store.records import Logprobs
from weir.trainer.batching import micro_batches, pad
from weir.trainer.model import load_model, target_logprobs
from weir.trainer.samples import Sample

Scores = dict[str, Logprobs]  # by call id, shape (N,)


@torch.no_grad()
def score(model: Any, samples: Sequence[Sample], token_budget: int, device: torch.device) -> Scores:
    """The logprobs of each sample's targets."""
    scores: Scores = {}
    for part in micro_batches(samples, token_budget):
        temperatures = torch.tensor([sample.temperature for sample in part], device=device)
        logprobs = target_logprobs(model, pad(part, device), temperatures).logprobs.cpu()
        for sample, found in zip(part, torch.split(logprobs, [len(s.output_ids) for s in part]), strict=True):
            scores[sample.call_id] = found.numpy()
    return scores


def score_by(folder: Path, samples: Sequence[Sample], token_budget: int, device: torch.device) -> Scores:
    """As `score`, by the model in a folder, which is in memory no longer than that."""
    return score(load_model(folder, device), samples, token_budget, device)
