"""Percentiles, and the JSON line that ends the output of every benchmark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


def print_figures(figures: Mapping[str, object]) -> None:
    """Print the figures as one JSON object on one line."""
    print(json.dumps(figures), flush=True)


def percentile(values: Sequence[float], share: int) -> float:
    """The smallest value with at least `share` percent of the others below it; 0 for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)] if ordered else 0.0
