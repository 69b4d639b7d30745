"""`weir bench kernel-eval`: the cost of one evaluation on a warm server, and what many evaluations leave behind.

A server is started for the run, in a process of its own. Every candidate has another constant in its kernel, so that no
cache answers. The cold comparison stands for servers that start a process for each evaluation: a server is started,
evaluates once, and is stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated

import httpx
import psutil
import typer

from weir.kernel_eval.sandbox import syscalls
from weir.scripts.bench.kernel_eval.ir_speed import ir_over_interpreter
from weir.scripts.bench.kernel_eval.server import (
    CANDIDATE,
    TASK,
    client,
    cpu_s,
    evaluate,
    rss_bytes,
    running_server,
)

_SETTINGS = {"port": 0}
_AT_A_TIME = 16
_WARM = 40
_COLD = 3
_GRACE_S = 10.0


def bench_kernel_eval(
    evaluations: Annotated[int, typer.Option(help="How many for throughput, memory and leftovers.")] = 2000,
    trials: Annotated[int, typer.Option(help="num_correct_trials of each.")] = 3,
) -> None:
    """Time the full protocol on a small elementwise kernel, with everything on."""
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder  # for this run alone: leftovers in it are its servers'
        figures = _run(evaluations, trials)
    for name, value in figures.items():
        print(f"{name:28} {value:g}")
    print(json.dumps(figures))


def _run(evaluations: int, trials: int) -> dict[str, float]:
    syscalls.become_subreaper()  # orphans of the servers become children of this process, and are counted
    before = _left_behind()
    cold_ms = statistics.median(asyncio.run(_cold(trials)) for _ in range(_COLD))
    with running_server(_SETTINGS) as (url, pid):
        figures = asyncio.run(_measure(url, pid, evaluations, trials))
    figures["cold_over_warm"] = round(cold_ms / figures["warm_p50_ms"], 1)
    _await_ends()
    figures["left_behind"] = len(_left_behind() - before)
    return figures | ir_over_interpreter()


async def _cold(trials: int) -> float:
    """Milliseconds from nothing to a verdict."""
    started = time.perf_counter()
    with running_server(_SETTINGS) as (url, _):
        async with client(url) as http:
            await _evaluate(http, trials, 0)
            return (time.perf_counter() - started) * 1e3


async def _measure(url: str, pid: int, evaluations: int, trials: int) -> dict[str, float]:
    async with client(url) as http:
        await _evaluate(http, trials, 0)
        latencies_ms = [await _evaluate(http, trials, 1 + i) for i in range(_WARM)]
        await _many(http, trials, range(1000, 1000 + _AT_A_TIME))  # warms up all judges
        rss_before, cpu_before_s, started = rss_bytes(pid), cpu_s(pid), time.perf_counter()
        load = asyncio.create_task(_many(http, trials, range(2000, 2000 + evaluations)))
        health_ms = await _health_while(http, load)
        seconds = time.perf_counter() - started
        growth_bytes = rss_bytes(pid) - rss_before
    return {
        "warm_p50_ms": round(statistics.median(latencies_ms), 2),
        "per_s": round(evaluations / seconds, 2),
        "health_p99_ms": round(statistics.quantiles(health_ms, n=100)[98], 2),
        "rss_growth_mb": round(growth_bytes / 2**20, 1),
        "cpu_ms": round(1e3 * (cpu_s(pid) - cpu_before_s) / evaluations, 2),
        "evaluations": evaluations,
    }


async def _evaluate(http: httpx.AsyncClient, trials: int, number: int) -> float:
    """Milliseconds of one evaluation of a kernel that was not evaluated before. Raises RuntimeError if it fails."""
    factor = 1 + number / 4096
    started = time.perf_counter()
    reply = await evaluate(http, TASK.format(factor=factor), CANDIDATE.format(factor=factor), trials)
    took_ms = (time.perf_counter() - started) * 1e3
    if reply is None:
        raise RuntimeError("the server gave no reply to the benchmark's own kernel")
    if not reply["correct"]:
        raise RuntimeError(f"the benchmark's own kernel was judged {reply['fault']}: {reply['fault_message']}")
    return took_ms


async def _many(http: httpx.AsyncClient, trials: int, numbers: range) -> None:
    gate = asyncio.Semaphore(_AT_A_TIME)

    async def one(number: int) -> None:
        async with gate:
            await _evaluate(http, trials, number)

    await asyncio.gather(*(one(number) for number in numbers))


async def _health_while(http: httpx.AsyncClient, load: asyncio.Task[None]) -> list[float]:
    """Milliseconds of each GET /health, ten times a second while the load runs."""
    taken = []
    while not load.done():
        started = time.perf_counter()
        (await http.get("/health")).raise_for_status()
        taken.append((time.perf_counter() - started) * 1e3)
        await asyncio.sleep(0.1)
    await load
    return taken


def _await_ends() -> None:
    """Reap the children that end within the grace period: a namespace ends after the process that held it."""
    deadline = time.monotonic() + _GRACE_S
    while psutil.Process().children() and time.monotonic() < deadline:
        if os.waitpid(-1, os.WNOHANG) == (0, 0):
            time.sleep(0.01)


def _left_behind() -> set[str]:
    """The processes, temporary folders and shared memory segments that exist while no server runs."""
    segments = {str(path) for path in Path("/dev/shm").iterdir()}
    folders = {str(path) for path in Path(tempfile.gettempdir()).glob("weir-kernel-eval-*")}
    return segments | folders | {f"process {child.pid}" for child in psutil.Process().children()}
