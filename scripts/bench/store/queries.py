"""The query figures of `weir bench store`: at rest, while a proxy writes, and as the store grows.

Invariant: the queries are users' queries over the views; times are the best of several, with the snapshot open. Opening
a snapshot is a figure of its own. The growing store has short calls: its figures are about metadata.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weir.scripts.bench.store.calls import make_calls, short_calls
from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.log.writer import LogWriter
from weir.store.maintenance.compact import compact
from weir.store.reader import connect
from weir.store.records.call_record import CallRecord

if TYPE_CHECKING:
    import duckdb

QUERIES = {
    "reward_by_version_ms": """SELECT c.version_max, count(*), avg(s.reward)
        FROM calls c JOIN sessions s USING (session_id) GROUP BY 1""",
    "turns_join_ms": "SELECT avg(c.held_ms + p.held_ms) FROM calls c JOIN calls p ON p.call_id = c.parent_call",
    "sessions_ms": "SELECT count(*), avg(num_turns) FROM sessions",
    "branches_ms": "SELECT count(*), avg(num_tokens) FROM branches",
}
TOKEN_SCAN = "SELECT version, avg(logprob) FROM tokens GROUP BY 1"
GROWTH = {"4k": 4_000, "40k": 40_000, "400k": 400_000}
WRITES_PER_S = 500
FILE_CALLS = 20_000  # compacted together
BUSY_ROUNDS = 7
MOST_LATE_S = 0.1  # backlog that a late writer catches up on


def measure_queries(root: Path, calls: Iterable[CallRecord]) -> dict[str, float]:
    """Best times of the queries, and how much longer they take while calls are written."""
    config = StoreConfig(root=root, segment_grace_s=0)
    num_tokens = build(config, calls)
    started = time.perf_counter()
    with connect(config) as db:
        figures = {"connect_ms": (time.perf_counter() - started) * 1e3}
        figures |= {name: best_ms(db, query) for name, query in QUERIES.items()}
        figures["token_scan_mtok_s"] = num_tokens / best_ms(db, TOKEN_SCAN) / 1e3
        figures |= _measure_busy(config, db)
    return figures


def _measure_busy(config: StoreConfig, db: duckdb.DuckDBPyConnection) -> dict[str, float]:
    """Medians with and without writes, alternating, so that other load affects both."""
    idle: dict[str, list[float]] = {name: [] for name in QUERIES}
    busy: dict[str, list[float]] = {name: [] for name in QUERIES}
    writing = _Writing(config)
    try:
        for _ in range(BUSY_ROUNDS):
            _ask_all(db, idle)
            with writing:
                _ask_all(db, busy)
        with writing:
            connect_ms = _ms(lambda: connect(config).close())
    finally:
        writing.close()
    ratios = {name: statistics.median(busy[name]) / statistics.median(idle[name]) for name in QUERIES}
    return {"busy_over_idle": max(ratios.values()), "connect_busy_ms": connect_ms}


def _ask_all(db: duckdb.DuckDBPyConnection, taken: dict[str, list[float]]) -> None:
    for name, query in QUERIES.items():
        taken[name] += [_ms(lambda query=query: db.execute(query).fetchall()) for _ in range(3)]  # type: ignore[misc]


def measure_growth(root: Path, sizes: dict[str, int] | None = None) -> dict[str, float]:
    """The metadata queries over stores of several sizes."""
    figures: dict[str, float] = {}
    for name, num_calls in (sizes or GROWTH).items():
        config = StoreConfig(root=root / name, segment_grace_s=0)
        build(config, short_calls(num_calls))
        with connect(config) as db:
            figures |= {f"{query}_{name}": best_ms(db, text) for query, text in QUERIES.items()}
    return figures


def build(config: StoreConfig, calls: Iterable[CallRecord]) -> int:
    """Record, compact and reward calls; returns the number of sampled tokens."""
    num_tokens, remaining = 0, iter(calls)
    sessions: dict[str, str] = {}  # session → group
    while some := list(itertools.islice(remaining, FILE_CALLS)):
        record(config, f"bench-{len(sessions)}", some)
        compact(config)
        num_tokens += sum(len(call.output_ids) // 4 for call in some)
        sessions |= {call.session_id: call.group_id for call in some}
    catalog = Catalog.open(config)
    reward(catalog, sessions)
    catalog.close()
    return num_tokens


def record(config: StoreConfig, writer: str, calls: Sequence[CallRecord]) -> None:
    """Append calls, a group at a time."""
    log = LogWriter(config.folder, writer, config)
    for start in range(0, len(calls), 64):
        for future in [log.append(call) for call in calls[start : start + 64]]:
            future.result()
    log.close()


def reward(catalog: Catalog, groups: dict[str, str]) -> None:
    """Register and reward sessions, given with their groups, in one transaction."""
    at = now_us()
    with catalog.writing().begin() as connection:
        connection.execute(t.groups.insert(), [{"group_id": g, "created_us": at} for g in set(groups.values())])
        rows = [{"session_id": s, "group_id": g, "metadata": {}, "created_us": at} for s, g in groups.items()]
        connection.execute(t.sessions.insert(), rows)
        given = {"idempotency_key": "k", "name": "r", "source": "bench", "created_us": at}
        rewards = [{"session_id": s, "value": i % 10 / 10, **given} for i, s in enumerate(groups)]
        connection.execute(t.rewards.insert(), rewards)


class _Writing:
    """A process that records 500 calls per second while the context is entered."""

    def __init__(self, config: StoreConfig) -> None:
        context = multiprocessing.get_context("spawn")
        self._on, self._written = context.Event(), context.Event()
        self._process = context.Process(target=_write, args=(config, self._on, self._written), daemon=True)
        self._process.start()

    def __enter__(self) -> None:
        self._written.clear()
        self._on.set()
        self._written.wait()

    def __exit__(self, *_: object) -> None:
        self._on.clear()

    def close(self) -> None:
        self._process.terminate()
        self._process.join()


def _write(config: StoreConfig, on: Event, written: Event) -> None:
    calls = list(make_calls(640, seed=1))
    log = LogWriter(config.folder, "busy", config)
    due = 0.0
    for number in itertools.count():
        on.wait()
        names = {"call_id": f"busy_{number:08d}", "session_id": f"busy_{number // 10}"}
        log.append(msgspec.structs.replace(calls[number % len(calls)], **names)).result()
        written.set()
        due = max(due + 1 / WRITES_PER_S, time.monotonic() - MOST_LATE_S)
        time.sleep(max(0.0, due - time.monotonic()))


def best_ms(db: duckdb.DuckDBPyConnection, query: str) -> float:
    """The fastest of several runs of a query, in milliseconds."""
    return best_of_ms(lambda: db.execute(query).fetchall(), 7)


def best_of_ms(work: Callable[[], object], times: int = 5) -> float:
    """The fastest of several runs, in milliseconds."""
    return min(_ms(work) for _ in range(times))


def _ms(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3
