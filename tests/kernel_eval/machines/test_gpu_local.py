"""A server on a GPU runs, proves, times and rewards kernels there; without one, it reports the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.machines.gpu_local import GpuMachine, machine_for
from weir.kernel_eval.machines.local import Machine
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.scripts.bench.kernel_eval.corpus import task_and_candidate

Read = Callable[[str], str]
HONEST = Path(__file__).parents[1] / "honest"
SIZED = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
SIZED += "N = 1 << 26\ndef get_inputs():\n    return [torch.randn(N)]\ndef get_init_inputs():\n    return []\n"


def test_gpus_are_used_where_they_are_and_not_where_settings_say_none() -> None:
    chosen = machine_for(KernelEvalConfig(), SandboxLevel.RLIMITS)
    assert isinstance(chosen, GpuMachine) == torch.cuda.is_available()
    assert type(machine_for(KernelEvalConfig(gpus=[]), SandboxLevel.RLIMITS)) is Machine


def test_without_a_gpu_a_server_says_that_it_interprets(server: Any) -> None:
    assert server.http.get("/health").json()["mode"] == "interpreter"


def test_a_kernel_is_judged_and_timed_on_the_gpu(gpu_server: Any, read_example: Read) -> None:
    source = read_example("relu_candidate").replace("256", "1024")
    reply = gpu_server.evaluate(source, SIZED, measure_performance=True, num_perf_trials=100)
    assert (reply["correct"], reply["mode"]) == (True, "gpu"), reply
    found = reply["details"]["timing"]
    assert found["timing_kind"] == "cuda_events"
    assert found["least_ms"] <= found["median_ms"]
    assert found["std_ms"] <= 0.03 * found["mean_ms"]
    assert reply["raw_reward"] == pytest.approx(0.3 + min(max(reply["speedup"] - 1, 0), 2))
    assert 0.5 < reply["speedup"] < 2.0


def test_an_illegal_access_is_a_fault_and_the_gpu_serves_on(gpu_server: Any, read_example: Read) -> None:
    store = "tl.store(out_ptr + offsets,"
    wild = read_example("relu_candidate").replace(store, store.replace("offsets", "100000000000 + offsets"))
    reply = gpu_server.evaluate(wild)
    assert reply["fault"] == "illegal_access", reply
    assert gpu_server.evaluate(read_example("relu_candidate"))["correct"]


def test_the_device_chooses_the_configuration_that_is_fastest_there(gpu_server: Any, read_example: Read) -> None:
    """The first configuration, which a machine without a GPU would take, is many times slower."""
    tuned = "@triton.autotune([triton.Config({'BLOCK': b}, num_warps=w) for b, w in ((16, 1), (1024, 4))], ['n'])\n"
    source = read_example("relu_candidate").replace("@triton.jit", tuned + "@triton.jit")
    source = source.replace(
        "(triton.cdiv(x.numel(), 256),)", "lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)"
    ).replace(", BLOCK=256", "")
    assert source.count("BLOCK=") == 0
    reply = gpu_server.evaluate(source, SIZED, measure_performance=True, num_perf_trials=20)
    assert reply["correct"], reply
    (kernel,) = reply["details"]["compile"]["kernels"]
    assert kernel["num_warps"] == 4, reply


def test_what_the_candidates_python_computes_while_a_kernel_compiles_is_part_of_it(gpu_server: Any) -> None:
    task, candidate = task_and_candidate((HONEST / "constexpr_function.py").read_text())
    reply = gpu_server.evaluate(candidate, task)
    assert reply["correct"], reply


def test_a_store_beside_a_tensor_is_a_fault(gpu_server: Any, read_example: Read) -> None:
    store = "tl.store(out_ptr + offsets,"
    more = "tl.store(out_ptr + n + offsets, 0.0, mask=offsets < 4)\n    "
    beside = read_example("relu_candidate").replace(store, more + store)
    reply = gpu_server.evaluate(beside)
    assert (reply["fault"], reply["details"]["phase"]) == ("illegal_access", "replay"), reply
