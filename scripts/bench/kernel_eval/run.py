"""`weir bench kernel-eval`: what one evaluation costs, warm, and what many leave behind.

A server is started for the run, in a process of its own. Every candidate differs from the one before it (a constant of
its kernel), so that nothing is measured that a cache answered. The cold comparison is the way of servers that start a
process for each evaluation: a server is started, asked once, and stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weir.kernel_eval.sandbox import syscalls

if TYPE_CHECKING:
    import httpx

_TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * {factor}
def get_inputs():
    return [torch.randn(1000)]
def get_init_inputs():
    return []
"""
_CANDIDATE = """
import torch, triton, triton.language as tl
@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0) * {factor}, mask=mask)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
"""
_AT_A_TIME = 16
_WARM = 40
_COLD = 3
_GRACE_S = 10.0


def bench_kernel_eval(
    evaluations: Annotated[int, typer.Option(help="How many for throughput, memory and what is left behind.")] = 2000,
    trials: Annotated[int, typer.Option(help="num_correct_trials of each.")] = 3,
) -> None:
    """Time the full protocol on a small elementwise kernel, with everything on."""
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder  # of this run alone: what stays in it is of its servers
        figures = _run(evaluations, trials)
    for name, value in figures.items():
        print(f"{name:16} {value:g}")
    print(json.dumps(figures))


def _run(evaluations: int, trials: int) -> dict[str, float]:
    syscalls.become_subreaper()  # what the servers leave behind becomes a child of this process, and is counted
    before = _left_behind()
    cold_ms = statistics.median(asyncio.run(_cold(trials)) for _ in range(_COLD))
    with _server() as (url, pid):
        figures = asyncio.run(_measure(url, pid, evaluations, trials))
    figures["cold_over_warm"] = round(cold_ms / figures["warm_p50_ms"], 1)
    _await_ends()
    figures["left_behind"] = len(_left_behind() - before)
    return figures


@contextmanager
def _server() -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "weir.kernel_eval.server.main", '{"port": 0}']
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[2], process.pid
    finally:
        process.terminate()
        process.wait()


async def _cold(trials: int) -> float:
    """Milliseconds from nothing to a verdict."""
    started = time.perf_counter()
    with _server() as (url, _):
        async with _client(url) as http:
            await _evaluate(http, trials, 0)
            return (time.perf_counter() - started) * 1e3


async def _measure(url: str, pid: int, evaluations: int, trials: int) -> dict[str, float]:
    async with _client(url) as http:
        await _evaluate(http, trials, 0)
        latencies_ms = [await _evaluate(http, trials, 1 + i) for i in range(_WARM)]
        await _many(http, trials, range(1000, 1000 + _AT_A_TIME))  # both judges have done some work
        rss_before, cpu_before_s, started = _rss_bytes(pid), _cpu_s(pid), time.perf_counter()
        load = asyncio.create_task(_many(http, trials, range(2000, 2000 + evaluations)))
        health_ms = await _health_while(http, load)
        seconds = time.perf_counter() - started
        growth_bytes = _rss_bytes(pid) - rss_before
    return {
        "warm_p50_ms": round(statistics.median(latencies_ms), 2),
        "per_s": round(evaluations / seconds, 2),
        "health_p99_ms": round(statistics.quantiles(health_ms, n=100)[98], 2),
        "rss_growth_mb": round(growth_bytes / 2**20, 1),
        "cpu_ms": round(1e3 * (_cpu_s(pid) - cpu_before_s) / evaluations, 2),
        "evaluations": evaluations,
    }


def _client(url: str) -> httpx.AsyncClient:
    import httpx

    return httpx.AsyncClient(base_url=url, timeout=600, trust_env=False, limits=httpx.Limits(max_connections=64))


async def _evaluate(http: httpx.AsyncClient, trials: int, number: int) -> float:
    """Milliseconds of one evaluation, of a kernel that was not evaluated before."""
    factor = 1 + number / 4096
    body = {
        "original_model_src": _TASK.format(factor=factor),
        "custom_model_src": _CANDIDATE.format(factor=factor),
        "num_correct_trials": trials,
    }
    started = time.perf_counter()
    reply: dict[str, Any] = (await http.post("/eval", json=body)).json()
    if not reply["correct"]:
        raise RuntimeError(f"the benchmark's own kernel was judged {reply['fault']}: {reply['fault_message']}")
    return (time.perf_counter() - started) * 1e3


async def _many(http: httpx.AsyncClient, trials: int, numbers: range) -> None:
    gate = asyncio.Semaphore(_AT_A_TIME)

    async def one(number: int) -> None:
        async with gate:
            await _evaluate(http, trials, number)

    await asyncio.gather(*(one(number) for number in numbers))


async def _health_while(http: httpx.AsyncClient, load: asyncio.Task[None]) -> list[float]:
    """Milliseconds of /health, asked ten times a second while the load runs."""
    taken = []
    while not load.done():
        started = time.perf_counter()
        (await http.get("/health")).raise_for_status()
        taken.append((time.perf_counter() - started) * 1e3)
        await asyncio.sleep(0.1)
    await load
    return taken


def _cpu_s(pid: int) -> float:
    """Of a process, its living descendants, and all of theirs that have ended."""
    ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK") + sum(_cpu_s(child) for child in _children(pid))


def _rss_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants, each page of which is counted once for each that maps it."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(_rss_bytes(child) for child in _children(pid))


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _await_ends() -> None:
    """Bury what ends within the grace: a namespace ends after the process that held it, not with it."""
    deadline = time.monotonic() + _GRACE_S
    while _children(os.getpid()) and time.monotonic() < deadline:
        if os.waitpid(-1, os.WNOHANG) == (0, 0):
            time.sleep(0.01)


def _left_behind() -> set[str]:
    """Processes, temporary folders and segments of shared memory that are there while no server runs."""
    segments = {str(path) for path in Path("/dev/shm").iterdir()}
    folders = {str(path) for path in Path(tempfile.gettempdir()).glob("weir-kernel-eval-*")}
    return segments | folders | {f"process {child}" for child in _children(os.getpid())}
