"""A launch that is given memory of the host is an error of the candidate, as it is on a device."""

from __future__ import annotations

from typing import Any

import pytest

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return x * 2
def get_inputs(): return [torch.randn(64)]
"""
CANDIDATE = """
import torch, triton, triton.language as tl
@triton.jit
def double(x_ptr, factor_ptr, out_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * tl.load(factor_ptr))
MODULE
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.full((1,), 2.0))
        self.plain = torch.full((1,), 2.0)
        CONSTRUCTED
    def forward(self, x):
        out = OUT
        double[(1,)](x, FACTOR, out, SIZE=64)
        return out
"""


def candidate(out: str = "torch.empty_like(x)", factor: str = "self.factor", module: str = "", init: str = "") -> str:
    named = {"OUT": out, "FACTOR": factor, "MODULE": module, "CONSTRUCTED": init}
    source = CANDIDATE
    for name, text in named.items():
        source = source.replace(name, text)
    return source


@pytest.mark.parametrize(
    ("source", "argument"),
    [
        (candidate(out="torch.empty(64)"), "out_ptr"),
        (candidate(out="torch.empty(x.shape, dtype=x.dtype)"), "out_ptr"),
        (candidate(factor="self.plain"), "factor_ptr"),
        (candidate(factor="FACTORS", module="FACTORS = torch.full((1,), 2.0)"), "factor_ptr"),
    ],
)
def test_memory_of_the_host_is_an_error_that_says_what_to_write(server: Any, source: str, argument: str) -> None:
    reply = server.evaluate(source, TASK)
    assert (reply["fault"], reply["details"]["phase"], reply["raw_reward"]) == ("runtime_error", "call", 0.1)
    assert f"double is given {argument} in memory of the host" in reply["fault_message"]
    assert "device=x.device" in reply["fault_message"]


@pytest.mark.parametrize(
    "source",
    [
        candidate(),
        candidate(out="torch.empty(64, device=x.device)"),
        candidate(factor="self.plain.to(x.device)"),
        candidate(factor="self.moved", init="self.moved = self.plain.cuda()"),
        candidate(
            out="doubled(x)",
            module="@torch.library.custom_op('mine::doubled', mutates_args=())\n"
            "def doubled(x: torch.Tensor) -> torch.Tensor: return torch.empty(64, device='cuda')",
        ),
    ],
)
def test_memory_of_the_device_is_taken(server: Any, source: str) -> None:
    reply = server.evaluate(source, TASK)
    assert reply["correct"], reply
