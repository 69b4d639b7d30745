"""Warms up the zygote of judges: runs every step of a judgement once, since torch and Python initialise much lazily.

Every task has a judge of its own, and would repeat whatever is not initialised in the zygote. No task's code runs here.
"""

from __future__ import annotations

import ctypes

import torch

from weir.kernel_eval.ipc.tensor_arena import Arena
from weir.kernel_eval.judge.checks.expected_answers import difference, raw
from weir.kernel_eval.judge.source import source_policy
from weir.kernel_eval.tasks.input_variants import HARDEST, PLAIN
from weir.kernel_eval.tasks.reference import Reference

_M_MMAP_THRESHOLD = -3  # of mallopt(3); without it, the threshold grows with what is freed, up to 32 MiB
_LARGE_BYTES = 1 << 20
_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, 4)

    def forward(self, x):
        return torch.relu(self.linear(x)) * 0.5, x.sum(-1)

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return [16]
"""
_CANDIDATE = """
import torch, triton, triton.language as tl

@triton.jit
def copy(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        copy[(1,)](x, 8, BLOCK=8)
        return x
"""


def return_freed_memory() -> None:
    """Have malloc return large freed blocks to the system at once, since a judge frees pieces of large tensors."""
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def warm_up(guard_bytes: int = 4096) -> None:
    """Judge a dummy answer to a small task."""
    reference = Reference(_TASK, timeout_s=60.0)
    arguments = reference.init_arguments(1)
    model = reference.build(arguments, 2)
    for number, variant in enumerate((PLAIN, HARDEST)):
        inputs, expected, _ = reference.question(model, number, variant)
        arena = Arena(inputs, expected.outputs, guard_bytes, watched=True)
        answered = arena.take_outputs()
        difference(reference, model, inputs, expected, answered)
        arena.damage()
        for output in answered:
            torch.equal(raw(output), raw(output))
        arena.close()
    source_policy.checked(_CANDIDATE, frozenset())
