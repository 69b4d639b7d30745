"""`weir bench store`: how fast calls are recorded, compacted and asked, and what they take, on this machine.

The calls are those of bench_calls.py. Appends are measured by themselves (bench_log.py), and so are sizes
(bench_store_sizes.py) and questions (bench_store_queries.py).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import typer

from weir.scripts.bench.store.calls import SESSIONS_PER_GROUP, make_calls
from weir.scripts.bench.store.log import measure_log
from weir.scripts.bench.store.queries import best_of_ms, measure_growth, measure_queries, record
from weir.scripts.bench.store.sizes import measure_sizes
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.store.reader import load_calls
from weir.store.records.call_record import CallRecord

COMPACTIONS = 3  # of which the fastest counts


def main(num_calls: int = 8000, num_queried: int = 40_000, grow: bool = False, folder: Path | None = None) -> None:
    """Measure, print lines for people, and one JSON object on the last line."""
    root = Path(tempfile.mkdtemp(prefix="weir-bench-", dir=folder))
    try:
        figures = measure_growth(root / "growth") if grow else _measure(root, num_calls, num_queried)
    finally:
        shutil.rmtree(root)
    for name, value in figures.items():
        typer.echo(f"{name:28} {value:,.4g}")
    typer.echo(json.dumps(figures))


def _measure(root: Path, num_calls: int, num_queried: int) -> dict[str, float]:
    figures = measure_log(root / "log")
    figures |= measure_compaction(root / "store", root / "aside", list(make_calls(num_calls)))
    return figures | measure_queries(root / "queries", make_calls(num_queried))


def measure_compaction(root: Path, aside: Path, calls: list[CallRecord]) -> dict[str, float]:
    """Compaction, sizes, and how long a group takes to be read whole."""
    per_s = 0.0
    for attempt in range(COMPACTIONS):
        config = StoreConfig(root=root / str(attempt), segment_grace_s=0)
        per_s = max(per_s, _compact_per_s(config, calls))
    figures = {"calls": float(len(calls)), "compact_per_s": per_s}
    figures |= measure_sizes(config.data_dir, aside, calls)
    group = {call.session_id for call in calls if call.group_id == calls[0].group_id}
    assert len(group) == SESSIONS_PER_GROUP
    figures["rebuild_group_ms"] = best_of_ms(lambda: load_calls(config, sorted(group)))
    return figures


def _compact_per_s(config: StoreConfig, calls: list[CallRecord]) -> float:
    """Of a log that is on the disk, into a store whose catalog is there: it is seconds old when it is compacted."""
    Catalog.open(config).close()
    record(config, "bench", calls)
    os.sync()
    started = time.perf_counter()
    report = compact(config)
    taken = time.perf_counter() - started
    assert report.calls == len(calls)
    return report.calls / taken


if __name__ == "__main__":
    typer.run(main)
