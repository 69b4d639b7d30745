"""The server that the kernel-evaluation benchmarks start, the sources that they send to it, and its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import psutil

# Both take a `factor`: candidates that differ in it are different requests to every cache.
TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * {factor}
def get_inputs():
    return [torch.randn(1000)]
def get_init_inputs():
    return []
"""
CANDIDATE = """
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


@contextmanager
def running_server(settings: dict[str, Any], environment: dict[str, str] | None = None) -> Iterator[tuple[str, int]]:
    """A server in a process of its own. Yields its URL and pid."""
    process = subprocess.Popen(
        [sys.executable, "-m", "weir.kernel_eval.server.main", json.dumps(settings)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[2], process.pid
    finally:
        process.terminate()
        process.wait()


def client(url: str) -> httpx.AsyncClient:
    """A client of that server, for many requests at a time."""
    return httpx.AsyncClient(base_url=url, timeout=600, trust_env=False, limits=httpx.Limits(max_connections=64))


async def evaluate(
    http: httpx.AsyncClient, task: str, candidate: str, trials: int, *, perf_trials: int = 0
) -> dict[str, Any] | None:
    """The reply to one evaluation, which is timed with `perf_trials`; None if the server gave none."""
    body: dict[str, Any] = {"original_model_src": task, "custom_model_src": candidate, "num_correct_trials": trials}
    if perf_trials:
        body |= {"measure_performance": True, "num_perf_trials": perf_trials}
    try:
        response = await http.post("/eval", json=body)
    except httpx.TransportError:
        return None
    reply: dict[str, Any] | None = response.json() if response.status_code == 200 else None
    return reply


def descendants(pid: int) -> list[psutil.Process]:
    """The living descendants of a process; none if it has ended."""
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
        return found
    except psutil.NoSuchProcess:
        return []


def cpu_s(pid: int) -> float:
    """Processor seconds of a process, its living descendants, and all of theirs that have ended."""
    return _total(pid, lambda process: sum(process.cpu_times()[:4]))


def rss_bytes(pid: int) -> float:
    """Resident memory of a process and its descendants; a shared page counts once for each process that maps it."""
    return _total(pid, lambda process: process.memory_info().rss)


def _total(pid: int, figure: Callable[[psutil.Process], float]) -> float:
    total = figure(psutil.Process(pid))
    for process in descendants(pid):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            total += figure(process)
    return total
