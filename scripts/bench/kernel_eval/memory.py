"""`weir bench kernel-eval --memory`: what one evaluation takes, as a multiple of the task's own tensors.

The peak of a process is Linux's own (VmHWM), less that of one which judged a task of a few elements.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from weir.scripts.bench.kernel_eval import server

_ROLES = {"judge": "weir.kernel_eval.zygotes.judge", "player": "weir.kernel_eval.zygotes.player"}
_SAMPLE_S = 0.1
_SETTINGS = {"port": 0, "gpus": [], "memory_bytes": 4 << 30, "task_memory_bytes": 4 << 30, "call_timeout_s": 300}
_HEAD = "import torch, triton, triton.language as tl\n"
_TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, {names}):
        return {answer}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
_ELEMENTWISE = """
@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.sigmoid(tl.load(x + i, mask=i < n)), mask=i < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096)
        return out
"""
_SOFTMAX = """
@triton.jit
def kernel(x, out, columns, BLOCK: tl.constexpr):
    start, at = tl.program_id(0) * columns, tl.arange(0, BLOCK)
    values = tl.load(x + start + at, mask=at < columns, other=-float("inf"))
    exponents = tl.exp(values - tl.max(values, 0))
    tl.store(out + start + at, exponents / tl.sum(exponents, 0), mask=at < columns)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
"""
_MATMUL = """
@triton.jit
def kernel(a, b, c, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        along = start + tl.arange(0, BLOCK)
        x = tl.load(a + rows[:, None] * n + along[None, :])
        y = tl.load(b + along[:, None] * n + columns[None, :])
        total = tl.dot(x, y, total, input_precision="ieee")
    tl.store(c + rows[:, None] * n + columns[None, :], total)
class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel[(x.shape[0] // 64, x.shape[0] // 64)](x, y, out, x.shape[0], BLOCK=64)
        return out
"""
# the task's arguments and answer, its candidate, and the sizes of its inputs in the order of the arguments
_CASES = {
    "elementwise": ("x", "torch.sigmoid(x)", _ELEMENTWISE, 1, 4096),
    "softmax": ("x", "torch.softmax(x, -1)", _SOFTMAX, 1, 4096),
    "matmul": ("x, y", "x @ y", _MATMUL, 2, 2048),
}
_SMALL = 64
_FLOAT_BYTES = 4


def memory_over_tensors() -> dict[str, float]:
    """For each case, the peaks of judge and player over the bytes of the task's inputs and outputs.

    Raises RuntimeError as `peaks`.
    """
    figures: dict[str, float] = {}
    for name, (*_, num_inputs, size) in _CASES.items():
        small, large = (asyncio.run(peaks(name, each)) for each in (_SMALL, size))
        figures |= over_tensors(name, small, large, (num_inputs + 1) * size * size * _FLOAT_BYTES)
    return figures


def over_tensors(name: str, small: dict[str, int], large: dict[str, int], tensors_bytes: int) -> dict[str, float]:
    """What the large task took beyond the small one, in bytes by role, as multiples of the task's tensors."""
    return {f"{role}_over_tensors_{name}": round((large[role] - small[role]) / tensors_bytes, 1) for role in _ROLES}


async def peaks(name: str, size: int) -> dict[str, int]:
    """The peak of each role in bytes, during one evaluation of a case on a server of its own.

    `size`: rows and columns of each tensor. Raises RuntimeError if the benchmark's own candidate is not judged to be
    right.
    """
    arguments, answer, candidate, num_inputs, _ = _CASES[name]
    inputs = ", ".join([f"torch.randn({size}, {size})"] * num_inputs)
    task = _TASK.format(names=arguments, answer=answer, inputs=inputs)
    with server.running_server(_SETTINGS) as (url, pid):
        async with server.client(url) as http:
            judged = asyncio.create_task(server.evaluate(http, task, _HEAD + candidate, 3))
            found = dict.fromkeys(_ROLES, 0)
            while not judged.done():
                for role, peak in _sampled(pid):
                    found[role] = max(found[role], peak)
                await asyncio.sleep(_SAMPLE_S)
            reply = await judged
    if reply is None or not reply["correct"]:
        raise RuntimeError(
            f"the benchmark's own kernel was judged {reply and (reply['fault'], reply['fault_message'])}"
        )
    return found


def _sampled(pid: int) -> Iterator[tuple[str, int]]:
    """The peak so far of every process of a role."""
    for process in server.descendants(pid):
        with suppress(psutil.Error, OSError, StopIteration):
            command = " ".join(process.cmdline())
            role = next(role for role, module in _ROLES.items() if module in command)
            status = Path(f"/proc/{process.pid}/status").read_text()
            line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
            yield role, int(line.split()[1]) << 10


def main() -> None:
    """Print the figures, the last line as JSON. Raises RuntimeError as `memory_over_tensors`."""
    figures = memory_over_tensors()
    for name, value in figures.items():
        print(f"{name:36} {value:g}")
    print(json.dumps(figures))
