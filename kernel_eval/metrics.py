"""Figures over many evaluations: fast_p, pass@k, compile@k, and how speedups are distributed. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def fast_p(speedups: Sequence[float | None], threshold: float) -> float:
    """The share of tasks solved with a speedup above `threshold`; None stands for a task that is not solved.

    Source: KernelBench (Ouyang et al., 2025). fast_0 is the share of correct ones.
    """
    if not speedups:
        return 0.0
    return sum(1 for speedup in speedups if speedup is not None and speedup > threshold) / len(speedups)


def pass_at_k(num_samples: int, num_right: int, k: int) -> float | None:
    """The chance that one of k of the samples is right, without bias; None where there are fewer than k.

    1 - C(n - c, k) / C(n, k): Chen et al., 2021, equation 1. With samples that compile for c it is compile@k.
    """
    if k > num_samples:
        return None
    return 1.0 - math.comb(num_samples - num_right, k) / math.comb(num_samples, k)


def log2_speedups(speedups: Sequence[float]) -> dict[str, float]:
    """Quantiles, mean and deviation of the binary logarithms of speedups; empty for none."""
    logs = sorted(math.log2(speedup) for speedup in speedups if speedup > 0)
    if not logs:
        return {}
    pick = {f"p{share}": logs[round(share / 100 * (len(logs) - 1))] for share in (5, 25, 50, 75, 95)}
    return {**pick, "mean": statistics.fmean(logs), "std": statistics.pstdev(logs)}
