"""Weir's side of `weir bench trainer`: the learner's own loss and backward pass.

Each line on stdin asks for one step, answered by one JSON line: `flat` samples, or tree samples with shared prefixes
(`tree`) or without (`unshared`).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from weir.scripts.bench.processes import own_peak_bytes, reset_own_peak
from weir.scripts.bench.trainer.batches import flat_samples, tree_samples
from weir.trainer.credit.samples import Sample
from weir.trainer.learner.learner import Learner
from weir.trainer.model.batching import Layout, lay_out, micro_batches
from weir.trainer.settings.config import TrainerConfig


def main(model_path: str) -> None:
    """Answer lines until stdin ends."""
    learner = Learner(Path(model_path), TrainerConfig(device="cpu", dual_clip=None))
    samples = {"flat": flat_samples(), "tree": tree_samples()}
    before = reset_own_peak()
    for line in sys.stdin:
        what = line.strip()
        learner.layout = learner.model.layout(share_prefixes=what == "tree")
        found = _step(learner, samples["flat" if what == "flat" else "tree"])
        print(json.dumps(found | {"peak_bytes": own_peak_bytes() - before}), flush=True)


def _step(learner: Learner, samples: list[Sample]) -> dict[str, float]:
    learner.stepper.clear()
    learner.score(samples)
    started = time.perf_counter()
    stats = learner.accumulate(samples, fresh_version=0)
    seconds = time.perf_counter() - started
    norm = torch.nn.utils.clip_grad_norm_(learner.model.parameters(), 1e9)
    return {
        "seconds": seconds,
        "loss": stats.loss,
        "grad_norm": float(norm),
        "computed_tokens": _computed(samples, learner.layout, learner.config.token_budget),
    }


def _computed(samples: list[Sample], layout: Layout, budget: int) -> int:
    parts = micro_batches(samples, budget, layout)
    return sum(lay_out(part, layout, torch.device("cpu")).num_tokens for part in parts)


if __name__ == "__main__":
    main(*sys.argv[1:])
