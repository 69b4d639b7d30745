"""CUDA C++ on a GPU: built by the judge, run, proven from the machine code alone, timed. Every test needs a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
Read = Callable[[str], str]
SIZED = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
SIZED += "N = 1 << 26\ndef get_inputs():\n    return [torch.randn(N)]\ndef get_init_inputs():\n    return []\n"
EXTERN_C = '''
import torch
kernel = torch.cuda._compile_kernel("""
extern "C" __global__ void relu(const float* x, float* out, long n) {
    long i = blockIdx.x * (long) blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] > 0 ? x[i] : 0;
}
""", "relu")
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel(((x.numel() + 255) // 256, 1, 1), (256, 1, 1), (x, out, x.numel()))
        return out
'''


def test_an_extension_is_run_proven_and_timed(gpu_server: Any, read_example: Read) -> None:
    reply = gpu_server.evaluate(
        read_example("relu_extension"), SIZED, backend="cuda", measure_performance=True, num_perf_trials=100
    )
    assert (reply["correct"], reply["mode"]) == (True, "gpu"), reply
    (kernel,) = reply["details"]["compile"]["kernels"]
    assert "relu" in kernel["kernel"]
    assert reply["details"]["timing"]["timing_kind"] == "cuda_events"
    assert reply["raw_reward"] == pytest.approx(0.3 + min(max(reply["speedup"] - 1, 0), 2))


def test_a_kernel_without_an_extension_is_run_and_proven(gpu_server: Any) -> None:
    reply = gpu_server.evaluate(EXTERN_C, backend="cuda")
    assert reply["correct"], reply


STORE = "out[i] = fmaxf(x[i], 0.0f);"
SHARED = "{ __shared__ volatile float t[20000]; t[i] = x[i]; out[i] = fmaxf(t[i], 0.0f); }"  # read: else it is left out
REFUSED = [
    ("fmaxf(x[i], 0.0f)", "x[i]", "output_mismatch", ""),
    ("fmaxf(x[i], 0.0f)", "x[i + 100000000000]", "illegal_access", ""),
    ("return out;", "return at::relu(x);", "reward_hack", "torch_operator"),
    ("relu<<<(x.numel() + 255) / 256, 256>>>", "if (false) relu<<<1, 1>>>", "reward_hack", "no_kernel_launched"),
    ("torch::empty_like(x)", "torch::relu(x)", "reward_hack", "torch_operator"),
    ("(x.numel() + 255) / 256, 256", "1, 2048", "launch_failure", ""),
    ("auto out", "static auto out", "reward_hack", "output_reused"),
    (STORE, SHARED, "shared_mem_exceeded", ""),
]


@pytest.mark.parametrize(("old", "new", "fault", "says"), REFUSED, ids=[f"{r[2]}-{r[3]}-{r[1][:12]}" for r in REFUSED])
def test_what_is_wrong_with_an_extension_is_told(
    gpu_server: Any, read_example: Read, old: str, new: str, fault: str, says: str
) -> None:
    source = read_example("relu_extension")
    assert old in source
    reply = gpu_server.evaluate(source.replace(old, new), backend="cuda")
    assert not reply["correct"]
    assert (reply["fault"], reply["details"].get("rule", "")) == (fault, says), reply


def test_what_a_library_launches_is_no_kernel_of_the_candidate(gpu_server: Any, read_example: Read) -> None:
    """The extension's own launches are recorded; memory that other launches fill is not proven by them."""
    copies = "fmaxf(x[i], 0.0f)"
    hidden = "auto hidden = at::relu(x);\n    relu<<<"
    source = read_example("relu_extension").replace(copies, "x[i]").replace("relu<<<", hidden, 1)
    source = source.replace(">>>(x.data_ptr<float>()", ">>>(hidden.data_ptr<float>()")
    reply = gpu_server.evaluate(source, backend="cuda")
    assert (reply["fault"], reply["details"].get("rule")) == ("reward_hack", "torch_operator"), reply
