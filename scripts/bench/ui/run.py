"""`weir bench ui`: how fast the page answers over a large store, and what it holds in memory.

The store has conversations of ten short turns, one session of 200 calls, and one call of 32,768 tokens. The page runs
as `weir ui` does, in a process of its own; times are of whole answers over HTTP, from one client. The call of 32,768
tokens is also drawn and scrolled in Chromium (`browser.py`), and viewers are measured beside a proxy (`viewers.py`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
import msgspec
import numpy as np
import psutil
import typer

from weir.scripts.bench.figures import percentile, print_figures
from weir.scripts.bench.store.calls import short_calls
from weir.scripts.bench.store.queries import build
from weir.scripts.bench.ui.browser import measure_browser
from weir.scripts.bench.ui.viewers import measure_viewers
from weir.store.config import StoreConfig
from weir.store.records.call_record import CallRecord, VersionSpan, pack_ids, pack_logprobs

TIMES = 20  # requests of each figure
LONG_SESSION, LONG_CALL = "session_long", "call_long"
LONG_TURNS, LONG_TOKENS = 200, 32_768
VIEWED_CALLS = 40_000  # through the proxy with viewers, and as many without
SLOW_S = 0.002  # a pause of the slow reader after each piece
Figures = dict[str, float | None]
FILTERS = (
    "reward > 0.5",
    "reward IS NULL",
    "version_max = 3 AND num_calls > 5",
    "session_id LIKE '%77'",
    "task_id IS NULL",
)
_times = itertools.count()
SORTS = ("reward", "num_calls", "num_new_tokens", "session_id", "last_call_at")


def main(
    num_calls: int = 1_000_000,
    store: Path | None = None,
    downloaded_mb: int = 1024,
    viewed_calls: int = VIEWED_CALLS,
    only_json: bool = False,
) -> None:
    """Run the benchmark; prints lines for people, unless only JSON is wanted, then one JSON object.

    A given store is made once and kept. Without `viewed_calls` no viewers are measured.
    """
    load = os.getloadavg()[0]  # of the last minute, of all work on this machine
    with contextlib.ExitStack() as held:
        root = store or Path(held.enter_context(tempfile.TemporaryDirectory(prefix="weir-bench-")))
        config = StoreConfig(root=root)
        if not config.data_dir.exists():
            build(config, itertools.chain(short_calls(num_calls - LONG_TURNS - 1), _long_session(), _long_call()))
        figures = _measure(config, downloaded_mb)
    figures |= measure_viewers(viewed_calls) if viewed_calls else {}
    figures["load_before"] = load
    if not only_json:
        for name, value in figures.items():
            typer.echo(f"{name:28} {'not measured' if value is None else format(value, ',.4g')}")
    print_figures(figures)


def _measure(config: StoreConfig, downloaded_mb: int) -> Figures:
    started = time.perf_counter()
    with _page(config) as (process, client):
        client.get("/health")
        opened_s = time.perf_counter() - started
        figures: Figures = {"open_s": opened_s, "renewal_s": client.get("/health").json()["renewal_s"]}
        figures["rss_mb"] = _rss_mb(process)
        figures["first_page_p95_ms"] = _p95_ms(client, itertools.repeat("/"))
        figures["sessions_p95_ms"] = _p95_ms(client, itertools.repeat("/sessions"))
        filters = (f"/sessions?{urlencode({'where': where})}" for where in itertools.cycle(FILTERS))
        figures["filter_p95_ms"] = _p95_ms(client, filters)
        sorts = itertools.cycle(itertools.product(SORTS, ("asc", "desc")))
        figures["sort_p95_ms"] = _p95_ms(client, (f"/sessions?sort={sort}&order={order}" for sort, order in sorts))
        figures["session_200_p95_ms"] = _p95_ms(client, itertools.repeat(f"/sessions/{LONG_SESSION}"))
        figures["tokens_32k_p95_ms"] = _p95_ms(client, itertools.repeat(f"/calls/{LONG_CALL}/tokens.json"))
        figures |= measure_browser(str(client.base_url), LONG_CALL)
        figures |= _slow_download(process, client, downloaded_mb)
    return figures


@contextlib.contextmanager
def _page(config: StoreConfig) -> Iterator[tuple[psutil.Process, httpx.Client]]:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "ui", "--port", "0", "--root", str(config.root)]
    environment = os.environ | {"WEIR_UI__NICE": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None, "weir ui did not start"
        try:
            with httpx.Client(base_url=found[0], timeout=300.0, trust_env=False) as client:
                yield psutil.Process(process.pid), client
        finally:
            process.send_signal(signal.SIGTERM)


def _p95_ms(client: httpx.Client, paths: Iterator[str]) -> float:
    """Of pages that are made for it: each has an address that nobody asked for before."""
    asked = (f"{path}{'&' if '?' in path else '?'}time={next(_times)}" for path in itertools.islice(paths, TIMES))
    return percentile([_ms(client, path) for path in asked], 95)


def _ms(client: httpx.Client, path: str) -> float:
    started = time.perf_counter()
    client.get(path).raise_for_status()
    return 1e3 * (time.perf_counter() - started)


def _slow_download(process: psutil.Process, client: httpx.Client, megabytes: int) -> dict[str, float]:
    """Memory that a reader adds who takes that much CSV slowly."""
    before, most, taken = _rss_mb(process), 0.0, 0
    query = f"SELECT repeat('x', 1024) AS x, range AS n FROM range({megabytes * 1024})"
    with client.stream("GET", "/download/csv", params={"q": query}, headers={"accept-encoding": "identity"}) as answer:
        for piece in answer.iter_raw():
            taken += len(piece)
            most = max(most, _rss_mb(process))
            time.sleep(SLOW_S)
    assert taken > megabytes * 2**20
    return {"slow_download_added_mb": most - before}


def _rss_mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20


def _long_session() -> Iterator[CallRecord]:
    """A conversation of 200 turns of 64 tokens, whose requests hold the whole history."""
    (like,) = short_calls(1)
    rng = np.random.default_rng(1)
    prompt, messages = pack_ids(rng.integers(0, 50_000, 64, np.int32)), []
    for turn in range(LONG_TURNS):
        messages.append({"role": "user", "content": f"Step {turn}. " + "It failed once more. " * 10})
        answer = {"role": "assistant", "content": f"Attempt {turn}:\n\n```python\nx = {turn}\n```\n"}
        output = pack_ids(rng.integers(0, 50_000, 64, np.int32))
        yield _changed(
            like,
            f"call_of_long_{turn:03d}",
            prompt,
            output,
            like.started_us + turn * 1_000_000,
            msgspec.json.encode({"messages": messages}),
            msgspec.json.encode(answer),
        )
        messages.append(answer)
        prompt += output + pack_ids([turn])


def _long_call() -> Iterator[CallRecord]:
    (like,) = short_calls(1)
    output = pack_ids(np.random.default_rng(2).integers(0, 50_000, LONG_TOKENS, np.int32))
    yield _changed(like, LONG_CALL, pack_ids([1, 2, 3]), output, like.started_us, b"{}", b"{}")


def _changed(
    like: CallRecord, call_id: str, prompt: bytes, output: bytes, at_us: int, request: bytes, answer: bytes
) -> CallRecord:
    num_tokens = len(output) // 4
    return msgspec.structs.replace(
        like,
        call_id=call_id,
        session_id=LONG_SESSION if call_id != LONG_CALL else "session_of_call",
        group_id="group_long",
        started_us=at_us,
        first_token_us=at_us + 50_000,
        finished_us=at_us + 900_000,
        prompt_ids=prompt,
        output_ids=output,
        output_logprobs=pack_logprobs(np.full(num_tokens, -0.5, np.float32)),
        spans=(VersionSpan(0, num_tokens, "3"),),
        digest=call_id.encode(),
        request=request,
        answer=answer,
    )
