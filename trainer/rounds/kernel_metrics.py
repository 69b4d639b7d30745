"""Metrics of kernel evaluation over a round's calls: compile@k, correct@k, fast_p, speedups and faults.

Invariant: pure; a metric without a measurement is absent, never 0. The views `pass_at_k`, `fast_p` and `speedups` of
docs/sql.md have the same metrics over the whole store.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from weir.store.catalog.rows import EvaluationRow

KS = (1, 2, 4, 8, 16, 32)
SPEEDUPS = (1.0, 1.5, 2.0)  # p of fast_p


def kernel_metrics(evaluations: Sequence[EvaluationRow]) -> dict[str, Any]:
    """Shares of calls and means over groups, by name; empty where nothing was evaluated."""
    if not evaluations:
        return {}
    groups: dict[str, list[EvaluationRow]] = {}
    for row in evaluations:
        groups.setdefault(row.group_id, []).append(row)
    members = list(groups.values())
    faults = Counter(row.fault for row in evaluations if row.fault is not None)
    return {
        "compiled": statistics.fmean(row.compiled for row in evaluations),
        "correct": statistics.fmean(row.correct for row in evaluations),
        "compile_at_k": _at_k([(len(rows), sum(row.compiled for row in rows)) for rows in members]),
        "correct_at_k": _at_k([(len(rows), sum(row.correct for row in rows)) for rows in members]),
        "faults": dict(sorted(faults.items())),
        **_speed(members),
    }


def chance_at_k(num_samples: int, num_right: int, k: int) -> float:
    """pass@k, unbiased: 1 - C(n - c, k) / C(n, k) for c right of n samples (Chen et al., 2021, equation 1)."""
    return 1 - math.comb(num_samples - num_right, k) / math.comb(num_samples, k)


def _at_k(counts: Sequence[tuple[int, int]]) -> dict[str, float]:
    """The mean pass@k over the groups with at least k samples, by k."""
    chances = {str(k): [chance_at_k(n, right, k) for n, right in counts if n >= k] for k in KS}
    return {k: statistics.fmean(values) for k, values in chances.items() if values}


def _speed(members: Sequence[Sequence[EvaluationRow]]) -> dict[str, Any]:
    """Speedups of correct calls; `speedup_unconfirmed` counts measurements that the judge refused, by reason."""
    best: list[float] = []
    measured: list[float] = []
    for rows in members:
        speedups = [s for row in rows if row.correct and (s := _speedup(row)) is not None]
        measured += speedups
        best.append(max(speedups, default=0.0))
    refused = Counter(reason for rows in members for row in rows if row.correct and (reason := _flag(row)) is not None)
    unconfirmed = {"speedup_unconfirmed": dict(sorted(refused.items()))} if refused else {}
    if not measured:
        return unconfirmed
    return {
        **unconfirmed,
        "timed": len(measured),
        "speedup_mean": statistics.fmean(measured),
        "speedup_max": max(measured),
        "log2_speedup_mean": statistics.fmean(math.log2(speedup) for speedup in measured),
        "fast_p": {f"{p:g}": statistics.fmean(speedup > p for speedup in best) for p in SPEEDUPS},
    }


def _speedup(row: EvaluationRow) -> float | None:
    """Reference time over kernel time, where it was measured. Older verdicts have it in their timing details only."""
    timing = row.result if "speedup" in row.result else row.result.get("details", {}).get("timing", {})
    value = timing.get("speedup")
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _flag(row: EvaluationRow) -> str | None:
    """Why the judge does not count a measured time, in words without their figures."""
    timing = row.result.get("details", {}).get("timing", {})
    flagged = timing.get("flagged") if row.result.get("speedup") is None else None
    if flagged is None:
        return None
    return re.sub(r"[\d.]+", "N", str(flagged))
