"""A worker, which cannot start processes, has its judge compile CUDA C++ in another process."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import BuildNative
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.checks.native_build import NativeBuilder
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.toolchain import native_compilers
from weir.kernel_eval.toolchain.native_compilers import Toolchain
from weir.kernel_eval.toolchain.native_source import NativeModule, NativeSource

LIMITS = KernelEvalConfig().limits
toolchain = native_compilers.find("cuda")
pytestmark = pytest.mark.skipif(isinstance(toolchain, str), reason=f"cuda: {toolchain}")
RELU = """extern "C" __global__ void relu(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] > 0 ? x[i] : 0;
}"""
WORKER = f'''
import ctypes, pathlib, socket, sys, torch
from weir.kernel_eval.sandbox import seccomp
from weir.kernel_eval.toolchain import native_compilers
from weir.kernel_eval.worker.recorder import Recorder
from weir.kernel_eval.worker.remote_compiler import RemoteCompiler
(runtime,) = pathlib.Path(native_compilers.find("cuda").home, "lib64").glob("libcudart.so.*[0-9]")
ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
recorder = Recorder()
RemoteCompiler(socket.socket(fileno=int(sys.argv[1])), recorder, sys.argv[2]).install()
load = seccomp.build()
load and load()
from torch.utils.cpp_extension import load_inline
CODE = """{RELU}
void launch(size_t x, size_t out, int n) {{ relu<<<1, 32>>>((float*) x, (float*) out, n); }}
"""
HOST = """#include <pybind11/pybind11.h>
void launch(size_t x, size_t out, int n);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("launch", launch); }}
"""
extension = load_inline("extension", HOST, CODE, no_implicit_headers=True)
kernel = torch.cuda._compile_kernel("""{RELU}""", "relu")
x = torch.ones(8)
recorder.start([x])
with recorder:
    out = torch.empty_like(x)
    extension.launch(x.data_ptr(), out.data_ptr(), 8)
    try:
        kernel((1, 1, 1), (32, 1, 1), (x, out, 8))
    except (AssertionError, OSError, RuntimeError):
        pass  # there is no device, or the tensors are not on it
_, first, second = recorder.finish([out]).steps
assert first.parameters == second.parameters
print(first.module, second.module, first.kernel, second.block, [p.storage for p in second.pointers], flush=True)
'''


def builder(lease: socket.socket, limits: Limits = LIMITS) -> NativeBuilder:
    assert isinstance(toolchain, Toolchain)
    return NativeBuilder(lease, limits, toolchain)


def asked(text: str, **fields: object) -> BuildNative:
    return BuildNative(NativeModule("mine", (NativeSource("mine", text, built_by_torch=False),), **fields))


def test_a_worker_that_may_start_nothing_gets_an_extension_and_a_kernel_and_its_launches_are_heard(
    programs: socket.socket, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    ours, theirs = socket.socketpair()
    command = [sys.executable, str(tmp_path / "worker.py"), str(theirs.fileno()), str(tmp_path)]
    build = builder(programs)
    with subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdout=subprocess.PIPE, text=True) as worker, ours:
        theirs.close()
        for _ in range(2):
            question, _ = receive(ours, BuildNative)
            send(ours, build.build(question))
        assert worker.stdout is not None
        assert worker.stdout.read() == "0 1 relu (32, 1, 1) [0, 1]\n"
    assert [code[:4] for code in build.codes] == [b"\x7fELF", b"\x7fELF"]
    assert [kernel["kernel"] for kernel in build.report()["kernels"]] == ["relu", "relu"]


@pytest.mark.parametrize(
    ("text", "fields", "fault", "says"),
    [
        ("__global__ void k() { nothing(); }", {}, Fault.COMPILE_ERROR, "nothing"),
        ("__global__ void k() {}", {"defines_operators": True}, Fault.COMPILE_ERROR, "operators"),
        ("#include <cublas_v9.h>", {}, Fault.COMPILE_ERROR, "cublas_v9.h"),
    ],
)
def test_what_cannot_be_built_ends_the_evaluation(
    programs: socket.socket, text: str, fields: dict[str, object], fault: Fault, says: str
) -> None:
    with pytest.raises(FaultDetected) as found:
        builder(programs).build(asked(text, **fields))
    assert found.value.fault is fault
    assert says in found.value.message


def test_a_candidate_has_a_limited_number_of_sources_compiled(programs: socket.socket) -> None:
    piece = NativeSource("mine", RELU, built_by_torch=False)
    with pytest.raises(FaultDetected, match="9 sources"):
        builder(programs).build(BuildNative(NativeModule("mine", (piece,) * 9)))
