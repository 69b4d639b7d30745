"""The figures of several publishes that went the same way."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from weir.trainer.publishing.publish import PublishReport


def figures_of(name: str, reports: Sequence[PublishReport], num_bytes: int) -> dict[str, float]:
    """Medians over publishes of a model of so many bytes, with `name` before each figure; prints a line of them."""
    seconds = statistics.median(report.seconds for report in reports)
    closed_s = statistics.median(report.gate_closed_s for report in reports)
    print(f"{name}: {seconds * 1000:.0f} ms, gate closed for {closed_s * 1000:.0f} ms")
    return {
        f"{name}_ms": round(seconds * 1000, 1),
        f"{name}_gate_closed_ms": round(closed_s * 1000, 1),
        f"{name}_gb_s": round(num_bytes / seconds / 1e9, 3),
        f"{name}_sent_over_model": round(statistics.median(report.bytes_sent for report in reports) / num_bytes, 4),
    }
