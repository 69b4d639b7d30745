"""`weir bench kernel-eval`: what one evaluation costs, warm, and how many are done in a second.

A server is started for the run, in a process of its own. Processor time is that of all its processes, from /proc.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

_TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
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
    tl.store(out_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
"""


def bench_kernel_eval(
    evaluations: Annotated[int, typer.Option(help="How many for the throughput.")] = 200,
    trials: Annotated[int, typer.Option(help="num_correct_trials of each.")] = 3,
) -> None:
    """Time the full protocol on a small elementwise kernel."""
    command = [sys.executable, "-m", "weir.kernel_eval.serve", '{"port": 0}']
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[2]
        figures = asyncio.run(_measure(url, process.pid, evaluations, trials))
    finally:
        process.terminate()
        process.wait()
    for name, value in figures.items():
        print(f"{name:16} {value:g}")
    print(json.dumps(figures))


async def _measure(url: str, pid: int, evaluations: int, trials: int) -> dict[str, float]:
    import httpx

    body = {"original_model_src": _TASK, "custom_model_src": _CANDIDATE, "num_correct_trials": trials}
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:

        async def evaluate(gate: asyncio.Semaphore) -> float:
            async with gate:
                started = time.perf_counter()
                reply: dict[str, Any] = (await http.post("/eval", json=body)).json()
                if not reply["correct"]:
                    raise RuntimeError(
                        f"the benchmark's own kernel was judged {reply['fault']}: {reply['fault_message']}"
                    )
                return (time.perf_counter() - started) * 1e3

        alone = asyncio.Semaphore(1)
        await evaluate(alone)
        latencies_ms = [await evaluate(alone) for _ in range(40)]
        cpu_before_s, started = _cpu_s(pid), time.perf_counter()
        together = asyncio.Semaphore(16)
        await asyncio.gather(*(evaluate(together) for _ in range(evaluations)))
        seconds = time.perf_counter() - started
    return {
        "warm_p50_ms": round(statistics.median(latencies_ms), 2),
        "per_s": round(evaluations / seconds, 2),
        "cpu_ms": round(1e3 * (_cpu_s(pid) - cpu_before_s) / evaluations, 2),
    }


def _cpu_s(pid: int) -> float:
    """Of a process, its living descendants, and all of theirs that have ended."""
    ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return ticks / os.sysconf("SC_CLK_TCK") + sum(_cpu_s(int(child)) for child in children)
