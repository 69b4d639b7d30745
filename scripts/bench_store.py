"""`weir bench store`: how fast calls are recorded, compacted and asked, on this machine.

Conversations of ten turns, about 4,000 prompt and 256 output tokens a call at the end, over 8 weight versions.
Appends are measured by themselves (bench_log.py).
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import typer

from weir.scripts.bench_log import measure_log
from weir.scripts.bench_store_queries import measure_growth, measure_queries
from weir.store.compact import compact
from weir.store.config import StoreConfig
from weir.store.log import LogWriter
from weir.store.reader import load_calls
from weir.store.records import (
    CallRecord,
    CaptureLevel,
    FinishReason,
    SessionSource,
    VersionSpan,
    pack_ids,
    pack_logprobs,
)

TURNS = 10
OUTPUT_TOKENS = 256
FIRST_PROMPT_TOKENS = 1000
NEW_TOKENS = 80  # that the environment adds each turn
SESSIONS_PER_GROUP = 8
BATCH = 64
VOCABULARY = 50_000


def make_calls(num_calls: int, seed: int = 0) -> Iterator[CallRecord]:
    """Whole conversations, session after session."""
    rng = np.random.default_rng(seed)
    for session in range(-(-num_calls // TURNS)):
        prompt = _tokens(rng, FIRST_PROMPT_TOKENS)
        for turn in range(min(TURNS, num_calls - session * TURNS)):
            output = _tokens(rng, OUTPUT_TOKENS)
            yield _call(session, turn, prompt, output, rng)
            prompt = np.concatenate([prompt, output, _tokens(rng, NEW_TOKENS)])


def _tokens(rng: np.random.Generator, count: int) -> Any:
    """Ids as frequent as words are."""
    return (rng.zipf(1.3, count) % VOCABULARY).astype(np.int32)


def _call(session: int, turn: int, prompt: Any, output: Any, rng: np.random.Generator) -> CallRecord:
    at = 1_700_000_000_000_000 + session * 10_000_000 + turn * 1_000_000
    half = OUTPUT_TOKENS // 2
    version = session % 8
    message = {"role": "assistant", "content": "x" * 400}
    return CallRecord(
        call_id=f"call_{session:08d}_{turn:02d}",
        session_id=f"session_{session:08d}",
        session_source=SessionSource.PATH,
        group_id=f"group_{session // SESSIONS_PER_GROUP:08d}",
        dialect="chat",
        level=CaptureLevel.TOKENS,
        model="weir",
        stream=False,
        started_us=at,
        first_token_us=at + 50_000,
        finished_us=at + 900_000,
        prompt_ids=pack_ids(prompt),
        output_ids=pack_ids(output),
        output_logprobs=pack_logprobs(-rng.exponential(0.4, OUTPUT_TOKENS).astype(np.float32)),
        spans=(VersionSpan(0, half, str(version)), VersionSpan(half, OUTPUT_TOKENS, str(version + turn % 2))),
        finish=FinishReason.STOP,
        request=json.dumps({"model": "weir", "messages": [message] * (turn + 1)}).encode(),
        answer=json.dumps(message).encode(),
    )


def main(num_calls: int = 8000, num_queried: int = 40_000, grow: bool = False, folder: Path | None = None) -> None:
    """Measure, print lines for people, and one JSON object on the last line."""
    root = Path(tempfile.mkdtemp(prefix="weir-bench-", dir=folder))
    try:
        calls = list(make_calls(num_calls))
        figures = measure_log(root / "log")
        figures |= measure_reading(root / "store", calls)
        figures |= measure_queries(root / "queries", make_calls(num_queried))
        if grow:
            figures |= measure_growth(root / "growth")
    finally:
        shutil.rmtree(root)
    for name, value in figures.items():
        typer.echo(f"{name:28} {value:,.4g}")
    typer.echo(json.dumps(figures))


def measure_reading(root: Path, calls: list[CallRecord]) -> dict[str, float]:
    """Compaction, sizes, and how long a group takes to be read whole."""
    config = StoreConfig(root=root, segment_grace_s=0)
    log = LogWriter(root, "bench", config)
    for start in range(0, len(calls), BATCH):
        for future in [log.append(call) for call in calls[start : start + BATCH]]:
            future.result()
    log.close()
    started = time.perf_counter()
    report = compact(config)
    figures = {"calls": float(len(calls)), "compact_per_s": report.calls / (time.perf_counter() - started)}
    figures["smaller_than_json"] = sum(map(_json_bytes, calls)) / report.bytes_out
    figures |= _column_sizes(root)
    session_ids = [f"session_{i:08d}" for i in range(SESSIONS_PER_GROUP)]
    figures["rebuild_group_ms"] = _best_ms(lambda: load_calls(config, session_ids))
    return figures


def _json_bytes(call: CallRecord) -> int:
    """The call as a JSON line with its whole prompt."""
    prompt, output = (np.frombuffer(data, "<i4").tolist() for data in (call.prompt_ids, call.output_ids))
    logprobs = np.frombuffer(call.output_logprobs, "<f4").tolist()
    bodies = [call.request.decode(), call.answer.decode()]
    return len(json.dumps([call.call_id, call.session_id, prompt, output, logprobs, bodies]))


def _column_sizes(root: Path) -> dict[str, float]:
    import pyarrow.parquet as pq

    size = dict.fromkeys(("prompt_suffix", "output_logprobs"), 0)
    count = dict.fromkeys(size, 0)
    for path in (root / "data").iterdir():
        groups = pq.ParquetFile(path).metadata
        for i in range(groups.num_row_groups):
            for j in range(groups.num_columns):
                column = groups.row_group(i).column(j)
                name = column.path_in_schema.split(".")[0]
                if name in size:
                    size[name] += column.total_compressed_size
                    count[name] += column.num_values
    return {
        "bytes_per_id": size["prompt_suffix"] / count["prompt_suffix"],
        "bytes_per_logprob": size["output_logprobs"] / count["output_logprobs"],
    }


def _best_ms(work: Callable[[], object], times: int = 5) -> float:
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1e3)
    return min(taken)


if __name__ == "__main__":
    typer.run(main)
