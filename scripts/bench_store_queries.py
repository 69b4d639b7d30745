"""The questions of `weir bench store`: at rest, while a proxy writes, and as the store grows.

Invariant: what is asked is what users ask, over the views; times are the best of several, with the snapshot open. What
opening a snapshot costs stands beside them. The store that grows has short calls: its figures are about metadata.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from weir.store import catalog_schema as t
from weir.store.catalog import Catalog
from weir.store.catalog_engine import now_us
from weir.store.compact import compact
from weir.store.config import StoreConfig
from weir.store.log import LogWriter
from weir.store.reader import connect
from weir.store.records import CallRecord, VersionSpan, pack_ids, pack_logprobs

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
SHORT_PROMPT, SHORT_OUTPUT = 64, 16  # tokens of a call of the store that grows


def measure_queries(root: Path, calls: Iterable[CallRecord]) -> dict[str, float]:
    """Best times of the queries, and how much longer they take while calls are written."""
    config = StoreConfig(root=root, segment_grace_s=0)
    num_tokens = build(config, calls)
    started = time.perf_counter()
    with connect(config) as db:
        figures = {"connect_ms": (time.perf_counter() - started) * 1e3}
        figures |= {name: best_ms(db, query) for name, query in QUERIES.items()}
        figures["token_scan_mtok_s"] = num_tokens / best_ms(db, TOKEN_SCAN) / 1e3
        idle = {name: median_ms(db, query) for name, query in QUERIES.items()}
        with _Writing(config):
            busy = {name: median_ms(db, query) for name, query in QUERIES.items()}
            started = time.perf_counter()
            connect(config).close()
            figures["connect_busy_ms"] = (time.perf_counter() - started) * 1e3
    figures["busy_over_idle"] = max(busy[name] / idle[name] for name in QUERIES)
    return figures


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
    """Record, compact and reward calls. Returns how many tokens were sampled."""
    num_tokens, remaining = 0, iter(calls)
    sessions: dict[str, str] = {}  # and their groups
    while some := list(itertools.islice(remaining, FILE_CALLS)):
        log = LogWriter(config.folder, f"bench-{len(sessions)}", config)
        for start in range(0, len(some), 64):
            for future in [log.append(call) for call in some[start : start + 64]]:
                future.result()
        log.close()
        compact(config)
        num_tokens += sum(len(call.output_ids) // 4 for call in some)
        sessions |= {call.session_id: call.group_id for call in some}
    _reward(config, sessions)
    return num_tokens


def _reward(config: StoreConfig, groups: dict[str, str]) -> None:
    """Register and reward sessions in one transaction."""
    catalog = Catalog.open(config)
    at = now_us()
    with catalog.writing().begin() as connection:
        connection.execute(t.groups.insert(), [{"group_id": g, "created_us": at} for g in set(groups.values())])
        rows = [{"session_id": s, "group_id": g, "metadata": {}, "created_us": at} for s, g in groups.items()]
        connection.execute(t.sessions.insert(), rows)
        given = {"idempotency_key": "k", "name": "r", "source": "bench", "created_us": at}
        rewards = [{"session_id": s, "value": i % 10 / 10, **given} for i, s in enumerate(groups)]
        connection.execute(t.rewards.insert(), rewards)
    catalog.close()


def short_calls(num_calls: int) -> Iterator[CallRecord]:
    """Conversations of ten short turns."""
    from weir.scripts.bench_store import make_calls

    (like,) = make_calls(1)
    rng = np.random.default_rng(0)
    logprobs = pack_logprobs(np.full(SHORT_OUTPUT, -0.5, np.float32))
    for number in range(num_calls):
        session, turn = divmod(number, 10)
        if turn == 0:
            prompt = pack_ids(rng.integers(0, 50_000, SHORT_PROMPT, np.int32))
        output = pack_ids(rng.integers(0, 50_000, SHORT_OUTPUT, np.int32))
        at = like.started_us + session * 10_000_000 + turn * 1_000_000
        names = {"call_id": f"call_{number:08d}", "session_id": f"session_{session:08d}"}
        names["group_id"] = f"group_{session // 8:08d}"
        times = {"started_us": at, "first_token_us": at + 50_000, "finished_us": at + 900_000}
        spans = (VersionSpan(0, SHORT_OUTPUT, str(session * 8 // max(num_calls // 10, 1))),)
        tokens = {"prompt_ids": prompt, "output_ids": output, "output_logprobs": logprobs, "spans": spans}
        yield msgspec.structs.replace(like, **names, **times, **tokens, request=b"{}", answer=b"{}")
        prompt += output + pack_ids([turn])


class _Writing:
    """A process that records 500 calls a second, as long as this lasts."""

    def __init__(self, config: StoreConfig) -> None:
        context = multiprocessing.get_context("spawn")
        self._begun, self._stop = context.Event(), context.Event()
        self._process = context.Process(target=_write, args=(config, self._begun, self._stop))

    def __enter__(self) -> None:
        self._process.start()
        self._begun.wait()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._process.join()


def _write(config: StoreConfig, begun: Event, stop: Event) -> None:
    from weir.scripts.bench_store import make_calls

    calls = list(make_calls(100, seed=1))
    log = LogWriter(config.folder, "busy", config)
    started = time.perf_counter()
    for number in itertools.count():
        call = calls[number % len(calls)]
        log.append(
            msgspec.structs.replace(call, call_id=f"busy_{number:08d}", session_id=f"busy_{number // 10}")
        ).result()
        if number == WRITES_PER_S // 10:
            begun.set()
        if stop.wait(max(0.0, started + (number + 1) / WRITES_PER_S - time.perf_counter())):
            break
    log.close()


def best_ms(db: duckdb.DuckDBPyConnection, query: str, times: int = 7) -> float:
    """The least of several runs."""
    return min(_times_ms(db, query, times))


def median_ms(db: duckdb.DuckDBPyConnection, query: str, times: int = 15) -> float:
    """The median of several runs."""
    return statistics.median(_times_ms(db, query, times))


def _times_ms(db: Any, query: str, times: int) -> list[float]:
    return [_ms(lambda: db.execute(query).fetchall()) for _ in range(times)]


def _ms(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3
