"""Curves of rounds: every number of their metrics, by its name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

from weir.store.catalog.catalog import Catalog
from weir.ui.data.rows import rows

_ROUNDS = """
SELECT round_id, epoch(coalesce(committed_at, claimed_at)) AS time, CAST(metrics AS VARCHAR) AS metrics
FROM rounds ORDER BY round_id
"""
Curves = dict[str, Any]
Round = tuple[int, float, Mapping[str, Any]]  # number, Unix seconds, metrics


def curves(cursor: duckdb.DuckDBPyConnection, name: str) -> Curves:
    """The curves of a snapshot: `series` by name, as long as `round` and `time` (Unix seconds), None if missing."""
    found = rows(cursor, _ROUNDS)
    return _curves(name, [(row["round_id"], row["time"], json.loads(row["metrics"] or "null") or {}) for row in found])


def curves_of_catalog(catalog: Catalog, name: str) -> Curves:
    """As `curves`, of another store, from its catalog alone."""
    found = [(row.round_id, (row.committed_us or row.claimed_us) / 1e6, row.metrics or {}) for row in catalog.rounds()]
    return _curves(name, found)


def _curves(name: str, rounds: Sequence[Round]) -> Curves:
    series: dict[str, list[float | None]] = {}
    before: Mapping[str, Any] = {}
    for place, (_, _, metrics) in enumerate(rounds):
        for of_series, value in (*_numbers(metrics, ""), *_derived(metrics, before)):
            series.setdefault(of_series, [None] * len(rounds))[place] = value
        before = metrics
    return {
        "name": name,
        "round": [number for number, _, _ in rounds],
        "time": [at for _, at, _ in rounds],
        "series": dict(sorted(series.items())),
    }


def _numbers(metrics: Mapping[str, Any], before: str) -> Iterator[tuple[str, float]]:
    """Numbers by name, as in the view `round_metrics`, but for lists: each place in one would be a curve."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{before}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield before + name, float(value)


def _derived(metrics: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Series that follow from metrics of a round and of the one before it.

    `output_tokens_per_sample` is the mean length of what was sampled; `idle_share` is the share of the time from the
    end of the round before to the end of this one that was over before its first step: groups were not finished.
    """
    if metrics.get("samples") and "output_tokens" in metrics:
        yield "output_tokens_per_sample", metrics["output_tokens"] / metrics["samples"]
    spans, earlier = metrics.get("timeline"), before.get("timeline")
    if spans and earlier:
        left = max(began + seconds for _, began, seconds in earlier)
        began, ended = min(began for _, began, _ in spans), max(began + seconds for _, began, seconds in spans)
        if ended > left:
            yield "idle_share", max(began - left, 0.0) / (ended - left)
