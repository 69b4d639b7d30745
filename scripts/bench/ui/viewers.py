"""What viewers cost the proxy beside which the page runs: CPU a call and p99, with and without them, in turns.

A scripted engine answers at once, so that what is measured is the proxy. Viewers are as many as browsers would be
(`viewing.py`). All processes share this machine's cores, so p99 also holds what page and viewers take of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from weir.scripts.bench.processes import cpu_us_of
from weir.scripts.bench.proxy.load import Cost, Load, latency_ms
from weir.scripts.bench.proxy.scripted_engine import make_model_folder, text_of
from weir.scripts.bench.servers import COMMAND, module_server, proxy_server
from weir.scripts.launch.fleet import router_server, weir_server
from weir.scripts.launch.servers import free_port, running
from weir.scripts.launch.settings import RouterConfig

VIEWERS = 50
CONCURRENCY = 16
ALTERNATIONS = 8
NUM_PROMPT = 118  # tokens of a turn's text, as in the proxy's benchmark


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A proxy and a page over one store."""

    proxy_url: str
    proxy_pid: int
    page_url: str
    page_pid: int
    text: str


def measure_viewers(num_calls: int) -> dict[str, float]:
    """The proxy's CPU a call in microseconds and p99 in milliseconds, with viewers and without."""
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name:
        folder = Path(name)
        model, root = make_model_folder(folder / "model"), folder / "store"
        engine_port, proxy_port, page_port = (free_port() for _ in range(3))
        script = [str(engine_port), str(model)]
        engine = module_server(
            "engine", "weir.scripts.bench.proxy.scripted_engine", script, port=engine_port, folder=folder
        )
        config = RouterConfig(port=free_port(), prometheus_port=free_port())
        router = router_server(config, [f"http://127.0.0.1:{engine_port}"], folder)
        upstream = f"http://127.0.0.1:{config.port}"
        proxy = proxy_server("proxy", model, upstream, root, port=proxy_port, folder=folder, environment={})
        arguments = ["ui", "--port", str(page_port), "--root", str(root)]
        page = module_server("ui", COMMAND, arguments, port=page_port, folder=folder)
        compactor = weir_server("compactor", ["store", "compact", "--every", "30", "--root", str(root)], None, folder)
        with contextlib.ExitStack() as held:
            _, _, proxies, pages, _ = (
                held.enter_context(running([server])) for server in (engine, router, proxy, page, compactor)
            )
            beside = Beside(
                proxy_url=f"http://127.0.0.1:{proxy_port}/v1/chat/completions",
                proxy_pid=proxies[0].pid,
                page_url=f"http://127.0.0.1:{page_port}",
                page_pid=pages[0].pid,
                text=text_of(NUM_PROMPT, model),
            )
            return asyncio.run(_alternate(beside, num_calls))


async def _alternate(beside: Beside, num_calls: int) -> dict[str, float]:
    alone: list[Cost] = []
    watched: list[Cost] = []
    page_us, num_fetched = 0.0, 0
    part = num_calls // ALTERNATIONS
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        load = Load(session=session, url=beside.proxy_url, pids=[beside.proxy_pid], text=beside.text)
        await load.conversations(CONCURRENCY, part)
        for number in range(2 * ALTERNATIONS):
            if number % 4 in (0, 3):  # alone, watched, watched, alone: what drifts as the store grows is in both
                alone.append(await load.conversations(CONCURRENCY, part))
                continue
            with _viewers(beside.page_url) as fetched:
                before = cpu_us_of([beside.page_pid])
                watched.append(await load.conversations(CONCURRENCY, part))
                page_us += cpu_us_of([beside.page_pid]) - before
            num_fetched += fetched.pages
    cpu_us = [sum(cost.cpu_us for cost in costs) / (ALTERNATIONS * part) for costs in (alone, watched)]
    p99_ms = [latency_ms(costs, 99) for costs in (alone, watched)]
    halves_ms = [latency_ms(alone[first::4] + alone[first + 1 :: 4], 99) for first in (0, 2)]
    return {
        "viewers": VIEWERS,
        "proxy_cpu_us": cpu_us[0],
        "proxy_cpu_us_viewed": cpu_us[1],
        "proxy_cpu_added_share": cpu_us[1] / cpu_us[0] - 1,
        "proxy_p99_ms": p99_ms[0],
        "proxy_p99_ms_viewed": p99_ms[1],
        "proxy_p99_added_share": p99_ms[1] / p99_ms[0] - 1,
        "proxy_p99_spread_share": max(halves_ms) / min(halves_ms) - 1,  # of the calls without viewers, by halves
        "page_cpu_us_per_call": page_us / (ALTERNATIONS * part),
        "pages_fetched": num_fetched,
    }


class _Fetched:
    """How many pages the viewers were given."""

    def __init__(self) -> None:
        self.pages = 0


@contextlib.contextmanager
def _viewers(url: str) -> Iterator[_Fetched]:
    fetched = _Fetched()
    command = [sys.executable, "-m", "weir.scripts.bench.ui.viewing", url, str(VIEWERS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "open\n", "the viewers did not start"
        yield fetched
        process.stdin.close()
        fetched.pages = int(process.stdout.readline())
