"""`weir bench store`: speed of recording, compaction and queries, and size on disk, on this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import typer

from weir.scripts.bench.figures import print_figures
from weir.scripts.bench.store.calls import SESSIONS_PER_GROUP, make_calls
from weir.scripts.bench.store.copies import measure_copies
from weir.scripts.bench.store.log import measure_log
from weir.scripts.bench.store.queries import best_of_ms, measure_growth, measure_queries, record
from weir.scripts.bench.store.remote import measure_remote
from weir.scripts.bench.store.sizes import measure_sizes
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.store.reader import load_calls
from weir.store.records.call_record import CallRecord

COMPACTIONS = 3  # the fastest counts


def main(
    num_calls: int = 8000,
    num_queried: int = 40_000,
    grow: bool = False,
    copies: int | None = None,
    s3: bool = False,
    folder: Path | None = None,
) -> None:
    """Run the benchmark; prints lines for people, then one JSON object."""
    root = Path(tempfile.mkdtemp(prefix="weir-bench-", dir=folder))
    try:
        if s3:
            figures = measure_remote(root / "s3", num_calls)
        elif copies is not None:
            figures = measure_copies(root / "copies", copies)
        else:
            figures = measure_growth(root / "growth") if grow else _measure(root, num_calls, num_queried)
    finally:
        shutil.rmtree(root)
    for name, value in figures.items():
        typer.echo(f"{name:28} {value:,.4g}")
    print_figures(figures)


def _measure(root: Path, num_calls: int, num_queried: int) -> dict[str, float]:
    figures = measure_log(root / "log")
    figures |= measure_compaction(root / "store", root / "aside", list(make_calls(num_calls)))
    return figures | measure_queries(root / "queries", make_calls(num_queried))


def measure_compaction(root: Path, aside: Path, calls: list[CallRecord]) -> dict[str, float]:
    """Speed of compaction, sizes, and the time to read a group whole."""
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
    """Calls per second of compacting a synced log into a store whose catalog exists."""
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
