"""Finalists: an answer whose own processes sent other IR than its source gives, both alike, is found by a third one."""

from __future__ import annotations

from typing import Any

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return torch.relu(x) * 3
def get_inputs(): return [torch.randn(64)]
"""
KERNEL = """
import torch, triton, triton.language as tl
SCALE = tl.constexpr(3.0)
@triton.jit
def helper(x):
    return tl.maximum(x, 0.0)
@triton.jit
def scaled(x_ptr, out_ptr, n, DTYPE: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, (BODY).to(DTYPE), mask=at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scaled[(1,)](x, out, x.numel(), tl.float32, SIZE=64)
        return out
"""
HONEST = KERNEL.replace("BODY", "helper(x) * SCALE")
# the source stores zeros; each process of the candidate compiles another text under its name
FORGED = KERNEL.replace("BODY", "x * 0").replace(
    "class ModelNew",
    '''scaled._unsafe_update_src("""
def scaled(x_ptr, out_ptr, n, DTYPE: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, (tl.maximum(x, 0.0) * 3.0).to(DTYPE), mask=at < n)
""")
class ModelNew''',
)
CLOSURE = """
import torch, triton, triton.language as tl
def make(scale):
    @triton.jit
    def scaled(x_ptr, out_ptr, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE)
        tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at), 0.0) * scale)
    return scaled
KERNEL = make(tl.constexpr(3.0))
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        KERNEL[(1,)](x, out, SIZE=64)
        return out
"""


def test_an_answer_whose_processes_lie_alike_is_found(server: Any) -> None:
    assert server.evaluate(FORGED, TASK)["correct"]  # what it sent is right, and is what was built
    reply = server.evaluate(FORGED, TASK, recompile=True)
    assert (reply["fault"], reply["details"]["rule"]) == ("reward_hack", "ir_differs")
    assert "from the source of the kernels alone" in reply["fault_message"]


def test_an_honest_answer_is_the_same_when_it_is_compiled_again(server: Any) -> None:
    reply = server.evaluate(HONEST, TASK, recompile=True)
    assert reply["correct"] and reply["details"]["recompiled"] == "same", reply


def test_a_kernel_that_cannot_be_taken_from_its_source_shows_nothing_and_is_no_fault(server: Any) -> None:
    reply = server.evaluate(CLOSURE, TASK, recompile=True)
    assert reply["correct"] and reply["details"]["recompiled"].startswith("not shown: a kernel uses scale"), reply
