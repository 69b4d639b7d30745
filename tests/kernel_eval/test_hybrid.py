"""Candidates that launch kernels and have torch do a part: refused, rewarded by the kernels' part, or allowed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from weir.kernel_eval.config import KernelEvalConfig

_HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n"
MEAN_TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.mean()

def get_inputs():
    return [torch.randn(4096)]
"""
PARTIAL_SUMS = (
    _HEAD
    + """
@triton.jit
def partial_sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0)))

class ModelNew(torch.nn.Module):
    def forward(self, x):
        n = x.numel()
        partial = torch.empty(triton.cdiv(n, 1024), device=x.device)
        partial_sums[(partial.numel(),)](x, partial, n, BLOCK=1024)
        return partial.sum() / n
"""
)
DECOY = (
    _HEAD
    + """
@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        copied = torch.empty_like(x)
        copy[(triton.cdiv(x.numel(), 1024),)](x, copied, x.numel(), BLOCK=1024)
        return USED.mean()
"""
)
RESIDUAL_TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, w):
        return x @ w + x

def get_inputs():
    return [torch.randn(64, 64), torch.randn(64, 64)]
"""
MATMUL_THEN_ADD = (
    _HEAD
    + """
@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a, b = tl.load(a_ptr + m[:, None] * N + k), tl.load(b_ptr + k[:, None] * N + n)
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * N + n, total)

class ModelNew(torch.nn.Module):
    def forward(self, x, w):
        out = torch.empty_like(x)
        matmul[(2, 2)](x, w, out, 64, BLOCK=32)
        return out + x
"""
)
CONVOLUTION_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 8, 3)

    def forward(self, x):
        return torch.relu(self.conv(x))

def get_inputs():
    return [torch.randn(2, 4, 12, 12)]
"""
LIBRARY_CONVOLUTION = (
    _HEAD
    + """
@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.maximum(tl.load(x_ptr + i, mask=i < n), 0.0), mask=i < n)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 8, 3)

    def forward(self, x):
        y = self.conv(x)
        out = torch.empty_like(y)
        relu[(triton.cdiv(y.numel(), 256),)](y, out, y.numel(), BLOCK=256)
        return out
"""
)

Start = Callable[..., contextlib.AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def scaling(start_server: Start) -> Iterator[Any]:
    with start_server(hybrid="scale") as server:
        yield server


@pytest.fixture(scope="module")
def allowing(start_server: Start) -> Iterator[Any]:
    with start_server(hybrid="allow", hybrid_operators=["sum", "div"]) as server:
        yield server


def verdict(reply: dict[str, Any]) -> tuple[Any, ...]:
    details = reply["details"]
    return reply["correct"], details.get("rule"), reply["raw_reward"], details.get("kernel_share")


def test_by_default_torch_may_not_compute(server: Any) -> None:
    assert verdict(server.evaluate(PARTIAL_SUMS, MEAN_TASK)) == (False, "torch_operator", 0.0, None)


def test_a_finishing_step_costs_next_to_nothing(scaling: Any) -> None:
    correct, rule, reward, share = verdict(scaling.evaluate(PARTIAL_SUMS, MEAN_TASK))
    assert (correct, rule) == (True, None)
    assert 0.99 < share < 1.0
    assert reward == pytest.approx(0.3 + 0.7 * share)


def test_an_addition_after_a_product_costs_its_bytes(scaling: Any) -> None:
    correct, _, reward, share = verdict(scaling.evaluate(MATMUL_THEN_ADD, RESIDUAL_TASK))
    assert (correct, share) == (True, 0.5)
    assert reward == pytest.approx(0.65)


def test_a_librarys_convolution_is_most_of_the_work(scaling: Any) -> None:
    reply = scaling.evaluate(LIBRARY_CONVOLUTION, CONVOLUTION_TASK)
    correct, _, reward, share = verdict(reply)
    assert correct
    assert share < 0.05
    assert reward < 0.34
    assert reply["details"]["torch_operators"] == ["aten.convolution.default"]


def test_a_kernel_whose_result_is_not_used_earns_nothing(scaling: Any) -> None:
    assert verdict(scaling.evaluate(DECOY.replace("USED", "x"), MEAN_TASK))[:3] == (False, "kernel_did_no_work", 0.0)


def test_needless_kernels_add_nothing(scaling: Any) -> None:
    correct, _, reward, share = verdict(scaling.evaluate(DECOY.replace("USED", "copied"), MEAN_TASK))
    assert (correct, reward, share) == (True, pytest.approx(0.3), 0.0)


def test_a_candidate_without_torchs_help_is_rewarded_in_full(scaling: Any, read_example: Callable[[str], str]) -> None:
    assert verdict(scaling.evaluate(read_example("relu_candidate"))) == (True, None, 1.0, None)


def test_named_operators_are_allowed_and_others_are_not(allowing: Any) -> None:
    correct, _, reward, share = verdict(allowing.evaluate(PARTIAL_SUMS, MEAN_TASK))
    assert (correct, reward) == (True, 1.0)
    assert share > 0.99
    assert verdict(allowing.evaluate(MATMUL_THEN_ADD, RESIDUAL_TASK))[1] == "torch_operator"


@pytest.mark.parametrize(
    "settings", [{"hybrid": "allow"}, {"hybrid_operators": ["sum"]}, {"hybrid": "refuse", "hybrid_operators": ["sum"]}]
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"hybrid is '(allow|refuse)'"):
        KernelEvalConfig(**settings)


def test_the_policy_holds_on_a_gpu(start_server: Start) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    with start_server(hybrid="scale", gpus=[0]) as server:
        correct, _, _, share = verdict(server.evaluate(MATMUL_THEN_ADD, RESIDUAL_TASK))
        assert (correct, share) == (True, 0.5)
