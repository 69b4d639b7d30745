"""CUDA C++ without a device: it is compiled, never judged correct, and a missing toolkit is not its fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weir.kernel_eval.judge.checks import native_report
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Outcome, Stage, raw_reward
from weir.kernel_eval.toolchain import native_compilers
from weir.kernel_eval.toolchain.native_compilers import Toolchain
from weir.kernel_eval.toolchain.native_source import NativeSource

Read = Callable[[str], str]
needs_nvcc = pytest.mark.skipif(
    "cuda" not in native_compilers.available(), reason=f"cuda: {native_compilers.find('cuda')}"
)
BODY = "if (i < n) out[i] = fmaxf(x[i], 0.0f);"
PRINTED = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compiling entry function '_Z3twoPf' for 'sm_90'
ptxas info    : Function properties for _Z3twoPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 1024 bytes smem
"""


@needs_nvcc
def test_cuda_that_compiles_is_left_out_because_nothing_can_run_it(contained_server: Any, read_example: Read) -> None:
    reply = contained_server.evaluate(read_example("relu_cuda"), backend="cuda")
    assert (reply["fault"], reply["compiled"], reply["correct"], reply["raw_reward"]) == (
        "unsupported",
        True,
        False,
        None,
    ), reply
    assert reply["details"]["correctness"] == "unknown"
    (kernel,) = reply["details"]["compile"]["kernels"]
    assert "relu" in kernel["kernel"]
    assert kernel["registers"] > 0


@needs_nvcc
def test_a_server_that_rewards_compiling_gives_a_tenth(start_server: Any, read_example: Read) -> None:
    with start_server(reward_compiled=True) as generous:
        reply = generous.evaluate(read_example("relu_cuda"), backend="cuda")
    assert (reply["fault"], reply["correct"], reply["raw_reward"]) == ("not_run", False, 0.1), reply


def test_no_reward_function_gives_more_than_a_tenth_for_what_was_not_run() -> None:
    assert raw_reward(Outcome(Stage.LOADED), Fault.NOT_RUN, lambda outcome: 3.0) == 0.1


REFUSED = [
    (BODY, "out[i] = no_such_function(x[i]);", "compile_error", "no_such_function"),
    (BODY, "__shared__ float t[20000]; t[i] = x[i]; __syncthreads(); out[i] = t[n - i];", "shared_mem_exceeded", "80"),
    (BODY, BODY + ' asm volatile("tcgen05.wait::ld.sync.aligned;");', "unsupported_arch", "sm_90"),
    ("SOURCE = \"\"\"", "SOURCE = \"\"\"\n#include <rocblas/rocblas.h>", "unsupported", "rocblas/rocblas.h"),
    ("SOURCE = \"\"\"", "SOURCE = \"\"\"\n#include <cublas_v9.h>", "compile_error", "cublas_v9.h"),
    ("SOURCE = \"\"\"", "SOURCE = \"\"\"\n#include \"mine.h\"", "compile_error", "mine.h"),
    ("__global__ void", "// __global__\nvoid", "reward_hack", "no_kernel_defined"),
    ("import torch\n", "import torch\nimport no_such_module\n", "import_error", "no_such_module"),
    ("class ModelNew", "class Other", "missing_entry_point", "ModelNew"),
]  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize(("old", "new", "fault", "says"), REFUSED, ids=[f"{r[2]}-{r[3]}" for r in REFUSED])
def test_what_does_not_compile_is_refused_with_the_compilers_words(
    old: str, new: str, fault: str, says: str, server: Any, read_example: Read
) -> None:
    source = read_example("relu_cuda")
    assert old in source
    reply = server.evaluate(source.replace(old, new), backend="cuda")
    assert (reply["fault"], reply["compiled"], reply["correct"]) == (fault, False, False) or (
        fault == "reward_hack" and reply["fault"] == fault
    ), reply
    assert says in reply["fault_message"]
    assert reply["raw_reward"] == (None if fault == "unsupported" else 0.0)


EXTERN_C = '''
import torch
kernel = torch.cuda._compile_kernel("""
extern "C" __global__ void relu(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] > 0 ? x[i] : 0;
}
""", "relu")
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel((4, 1, 1), (256, 1, 1), (x, out, x.numel()))
        return out
'''


@needs_nvcc
def test_extern_c_sources_with_a_small_model_compile_too(server: Any) -> None:
    reply = server.evaluate(EXTERN_C, backend="cuda")
    assert [kernel["kernel"] for kernel in reply["details"]["compile"]["kernels"]] == ["relu"], reply


TORCH = "#include <torch/extension.h>\ntorch::Tensor launch(torch::Tensor x) { return torch::empty_like(x); }\n"


@needs_nvcc
def test_sources_that_use_torch_compile_and_a_header_of_cudas_that_is_not_here_is_named(
    server: Any, read_example: Read
) -> None:
    opening = 'SOURCE = """'
    source = read_example("relu_cuda")
    reply = server.evaluate(source.replace(opening, opening + "\n" + TORCH), backend="cuda")
    assert (reply["compiled"], reply["details"]["correctness"]) == (True, "unknown"), reply
    reply = server.evaluate(source.replace(opening, opening + "\n#include <cublas_v2.h>\n"), backend="cuda")
    assert reply["compiled"] or "cublas_v2.h, which is not installed" in reply["fault_message"], reply


def test_hip_without_rocm_is_unsupported_and_says_what_is_missing(server: Any, read_example: Read) -> None:
    if "hip" in native_compilers.available():
        pytest.skip("ROCm's torch and hipcc are installed here")
    reply = server.evaluate(read_example("relu_cuda"), backend="hip")
    assert (reply["fault"], reply["raw_reward"]) == ("unsupported", None)
    assert "ROCm" in reply["fault_message"] or "hipcc" in reply["fault_message"]


def test_without_nvcc_cuda_is_unsupported_and_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_compilers, "_PLACES", {"cuda": (("WEIR_NO_SUCH",), str(tmp_path), "no-such-nvcc")})
    missing = native_compilers.find.__wrapped__("cuda")
    assert isinstance(missing, str)
    assert "no-such-nvcc is not installed" in missing


def test_every_kernel_that_ptxas_names_is_reported_with_its_own_figures() -> None:
    assert native_report.kernels_in(PRINTED) == [
        {"kernel": "one", "registers": 10, "shared_bytes": 0, "stack_bytes": 8, "spill_bytes": 16},
        {"kernel": "_Z3twoPf", "registers": 12, "shared_bytes": 1024, "stack_bytes": 0, "spill_bytes": 0},
    ]


def test_flags_that_name_files_are_not_passed_on() -> None:
    wanted = ("-O3", "--use_fast_math", "-DN=4", "-I/etc", "-o", "/etc/x", "--pre-include", "-Xcompiler", "@file")
    source = NativeSource("n", "", wanted)
    assert source.flags == ("-O3", "--use_fast_math", "-DN=4")
    command = Toolchain("cuda", "/c/bin/nvcc", "/c").command(source, "sm_90")
    assert not set(source.ignored_flags) - {"-o"} & set(command)
    assert "-arch=sm_90" in command


def test_instructions_of_one_chip_are_compiled_for_where_the_candidate_asks_for_them() -> None:
    exact = NativeSource("n", "", ("-gencode=arch=compute_90a,code=sm_90a",))
    assert "-arch=sm_90a" in Toolchain("cuda", "/c/bin/nvcc", "/c").command(exact, "sm_90")


def test_torchs_headers_are_read_only_where_torch_is_named() -> None:
    assert not NativeSource("n", "__global__ void k() {}").uses_torch
    assert NativeSource("n", "torch::Tensor f(torch::Tensor x);").uses_torch
    assert "torch/types.h" in NativeSource("n", "at::Tensor f();").complete_text
